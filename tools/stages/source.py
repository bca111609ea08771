"""The lines of a C++ or CUDA source that count: its code."""

from pathlib import Path
import re
from typing import NamedTuple

# Comments, and what may hold the beginning of a comment without being one: raw strings, strings, numbers with
# separators (1'000), names (before whose end no quotation begins) and characters.
TOKEN = re.compile(
    r"(?P<comment>//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))"
    r'|(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|\d(?:'?[\w.])*"
    r"|[A-Za-z_]\w*"
    r"|'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)

INCLUDE = re.compile(r'\s*#\s*include\s*["<]([^">]*)[">]')


class Line(NamedTuple):
    number: int  # in the file, from 1
    text: str
    after_blank: bool = False  # whether lines of code were left out in front of it, an empty one among them


def lines(text: str) -> list[Line]:
    """All lines of a file."""
    return [Line(number, line.rstrip()) for number, line in enumerate(text.splitlines(), 1)]


def without_comments(text: str) -> str:
    """The same number of lines; a comment inside a line leaves a space."""

    def replacement(token: re.Match) -> str:
        return (re.sub(r"[^\n]+", "", token[0]) or " ") if token["comment"] else token[0]

    return TOKEN.sub(replacement, text)


def code(text: str) -> list[Line]:
    """Without comments, blank lines and #include lines."""
    found = []
    blank = False
    for line, whole in zip(lines(without_comments(text)), text.splitlines()):
        if line.text and not INCLUDE.match(line.text):
            found.append(line._replace(after_blank=blank))
            blank = False
        elif not whole.strip():
            blank = True
    return found


def includes(text: str) -> list[Line]:
    """The headers that a file includes, as it writes them."""
    found = [(line.number, INCLUDE.match(line.text)) for line in lines(without_comments(text))]
    return [Line(number, match[1]) for number, match in found if match]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
