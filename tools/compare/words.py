"""The words of generated tables and notes, in the language of the page that they stand on."""

from pathlib import Path
from textwrap import wrap
import tomllib

COLUMNS = 120


class Words:
    """Called with an English template, gives it filled in, in its language. English is its own dictionary."""

    def __init__(self, dictionary: dict[str, str] | None = None):
        self.dictionary = dictionary

    def __call__(self, template: str, **values) -> str:
        return (template if self.dictionary is None else self.dictionary[template]).format(**values)

    @property
    def gap(self) -> str:
        """What stands between two sentences."""
        return " " if self.dictionary is None else ""

    @property
    def comma(self) -> str:
        """What stands between two parts of a sentence; a list has ", " of the dictionary."""
        return ", " if self.dictionary is None else "，"

    def paragraph(self, text: str) -> str:
        """A paragraph's lines; a Chinese one has one, since a browser shows a space where a line breaks."""
        lines = wrap(text, COLUMNS, break_long_words=False, break_on_hyphens=False) if self.dictionary is None else [text]
        return "\n".join(lines) + "\n"


ENGLISH = Words()
CHINESE = Words(tomllib.loads((Path(__file__).parent / "words_zh.toml").read_text(encoding="utf-8")))


def words_of(path: Path) -> Words:
    """Those of a page: that of README.zh.md is Chinese."""
    return CHINESE if path.name.endswith(".zh.md") else ENGLISH
