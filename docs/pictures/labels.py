"""The words of the drawings in Chinese, from labels_zh.toml; what is not there stays English."""

from pathlib import Path
import re
import tomllib

from svg import Picture

HERE = Path(__file__).resolve().parent
PATH = HERE / "labels_zh.toml"
PAGES = ("README{}.md", "[0-9][0-9]_*/README{}.md", "docs/running{}.md")  # of the path; {} for the language

# A word that is the same in both languages: no letters, one letter, capitals, a name with a sign or a digit in it.
CODE = re.compile(r"[^a-z]*|\W*([A-Za-z]|ms|d[qkvSOQKV]|D[kv])\W*|.*[A-Za-z].*[_\d\[\](){}ᵀ^./].*|.*\d.*")


def is_code(words: str, kind: str = "") -> bool:
    """Whether a text needs no translation."""
    return "mono" in kind.split() or all(CODE.fullmatch(word) for word in words.split())


def shown(suffix: str, language: str = "") -> set[str]:
    """The names of the drawings that the pages of the path show as NAME.`suffix`; of `language` (.zh) those translated."""
    texts = [path.read_text(encoding="utf-8") for pattern in PAGES for path in HERE.parents[1].glob(pattern.format(language))]
    return {name for text in texts for name in re.findall(rf"docs/pictures/((?:memory/)?\w+)\.{re.escape(suffix)}\)", text)}


class Labels:
    """Called with a drawing's text in English, says it in Chinese; `missing` are those that it had no words for.

    The drawing's own table counts before that of its folder ([memory]), and this before [all]; the last two are not for
    code. A number in a text matches a # in the dictionary: "chunk #" is for "chunk 0" and "chunk 1".
    """

    def __init__(self, tables: dict[str, dict[str, str]], picture: Picture):
        self.own = tables.get(picture.name, {})
        self.common = tables["all"] | tables.get(picture.name.rpartition("/")[0], {})
        kinds = {text.words: text.kind for text in picture.texts()}
        self.code = {words for words, kind in kinds.items() if is_code(words, kind)}
        self.used: set[str] = set()
        self.missing: list[str] = []

    def __call__(self, words: str) -> str:
        numbers = iter(re.findall(r"\d+", words))
        pattern = re.sub(r"\d+", "#", words)
        for dictionary in (self.own, {} if words in self.code else self.common):
            for key in (words, pattern):
                if key in dictionary:
                    self.used.add(key)
                    return dictionary[key] if key == words else re.sub("#", lambda _: next(numbers), dictionary[key])
        if words not in self.code and pattern not in self.missing:
            self.missing.append(pattern if len(words) < 60 else words)
        return words


def tables() -> dict[str, dict[str, str]]:
    return tomllib.loads(PATH.read_text(encoding="utf-8"))
