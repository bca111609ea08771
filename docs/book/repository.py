"""What the repository holds: its chapters, their stages in the order of main.cpp, and their other sources."""

from dataclasses import dataclass
from pathlib import Path
import re

from stages.stage import find, place_in_main

ROOT = Path(__file__).resolve().parents[2]

SOURCES = {".cpp", ".hpp", ".cu", ".cuh", ".h"}


@dataclass(frozen=True)
class Chapter:
    """A chapter's folder, its stage files in reading order, and the files that they share."""

    folder: str  # 01_linear_attention
    title: str  # the first heading of its README.md
    stages: list[str]  # paths below the root
    shared: list[str]

    @property
    def number(self) -> str:
        return self.folder[:2]


# Operators that are told on the page of another one's branch; those with `_backward` are by themselves.
TOLD_WITH = {
    "bidirectional_attention": "causal_attention",
    "bidirectional_attention_backward": "causal_attention",
    "retention": "gla_layer",
    "06_scan/delta_rule": "simple_gla",
}


def story(path: str) -> str:
    """The page that tells of a stage: that of its operator's branch, or the chapter's."""
    chapter, *operator, _ = path.split("/")
    for name in operator[:1]:
        told_with = TOLD_WITH.get(name) or TOLD_WITH.get(f"{chapter}/{name}") or name
        for folder in (name, told_with, name.removesuffix("_backward")):
            if (ROOT / chapter / folder / "README.md").exists():
                return f"{chapter}/{folder}/README.md"
    return f"{chapter}/README.md"


def read(path: str) -> str:
    """The text of a file, its path relative to the root."""
    return (ROOT / path).read_text(encoding="utf-8")


def title(path: str) -> str:
    """The title of a Markdown file: its first heading."""
    match = re.search(r"^# (.*)", read(path), re.M)
    if not match:
        raise SystemExit(f"{path} has no title")
    return match[1]


def sources(folder: str) -> list[str]:
    """The sources below a folder, without its tests."""
    found = (p.relative_to(ROOT) for p in (ROOT / folder).rglob("*") if p.suffix in SOURCES)
    return sorted(str(p) for p in found if "test" not in p.parts)


def chapters() -> list[Chapter]:
    """All chapters, in order."""
    result = []
    found = find(ROOT)
    for path in found:
        if place_in_main(ROOT, path) is None:
            raise SystemExit(f"{path.split('/')[0]}/main.cpp does not name the operator of {path}")
    for readme in sorted(ROOT.glob("[0-9][0-9]_*/README.md")):
        folder = readme.parent.name
        files = sources(folder)
        stages = [path for path, stage in found.items() if stage.chapter == folder]
        shared = [f for f in files if f not in stages]
        result.append(Chapter(folder, title(f"{folder}/README.md"), stages, shared))
    return result
