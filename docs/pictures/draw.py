#!/usr/bin/env python3
"""Draws all pictures, and those of the path once more with Chinese words (NAME.zh.svg).

With --check it draws nothing, and fails if a file is not what it would draw; it warns of words that a translated page
shows in English. With --missing [NAME ...] it lists the words that labels_zh.toml lacks, as it would have them.
"""

from pathlib import Path
import sys

from drawings import all_drawings
from labels import Labels, shown, tables
from memory import all_memories

FOLDER = Path(__file__).resolve().parent


def files() -> tuple[dict[Path, str], dict[str, list[str]]]:
    """The text of each file; by a drawing's name the words that have no translation."""
    drawings = all_drawings() + all_memories()
    texts = {picture.path(FOLDER): picture.svg() for picture in drawings}
    missing = {}
    dictionary, on_path = tables(), shown("svg")
    for picture in drawings:
        if picture.name in on_path:
            say = Labels(dictionary, picture)
            texts[picture.path(FOLDER, "zh.svg")] = picture.svg(say, "zh-CN")
            missing[picture.name] = say.missing
    return texts, missing


def quoted(words: str) -> str:
    return '"' + words.replace("\\", "\\\\").replace('"', '\\"') + '"'


def main(arguments: list[str]) -> int:
    if arguments[:1] not in ([], ["--check"], ["--missing"]) or len(arguments) > 1 and arguments[0] != "--missing":
        print(__doc__, file=sys.stderr)
        return 2
    texts, missing = files()
    if arguments[:1] == ["--missing"]:
        for name, words in missing.items():
            if words and name in (arguments[1:] or missing):
                print(f"[{quoted(name) if '/' in name else name}]", *(f'{quoted(one)} = ""' for one in words), "", sep="\n")
        return 0
    status = 0
    for path, text in texts.items():
        if not arguments:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{path} is not what docs/pictures/draw.py draws", file=sys.stderr)
            status = 1
    for name in sorted(shown("zh.svg", ".zh")):
        if missing.get(name):
            print(f"warning: {name}.zh.svg has {len(missing[name])} texts in English (draw.py --missing {name})", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
