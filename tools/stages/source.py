"""The lines of a C++ or CUDA source that count: its code.

Comments, blank lines, #include lines and `#pragma once` do not count. The lines that open and close a namespace do not
count either, so that code may move to a file of its own without getting longer.
"""

from functools import cache
from pathlib import Path
import posixpath
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
AROUND = re.compile(r"\s*#\s*pragma once\b|(?:inline )?namespace\b[\w: ]*\{$")  # beside an #include line
NAMESPACE_END = re.compile(r"\}\s*// namespace\b")


class Line(NamedTuple):
    number: int  # in the file, from 1
    text: str
    after_blank: bool = False  # whether lines of code were left out in front of it, an empty one among them


def lines(text: str) -> list[Line]:
    """All lines of a file."""
    return [Line(number, line.rstrip()) for number, line in enumerate(text.splitlines(), 1)]


@cache
def without_comments(text: str) -> str:
    """The same number of lines; a comment inside a line leaves a space."""

    def replacement(token: re.Match) -> str:
        return (re.sub(r"[^\n]+", "", token[0]) or " ") if token["comment"] else token[0]

    return TOKEN.sub(replacement, text)


def code(text: str) -> list[Line]:
    """The lines that count."""
    found = []
    blank = False
    for line, whole in zip(lines(without_comments(text)), text.splitlines()):
        if line.text and not (INCLUDE.match(line.text) or AROUND.match(line.text) or NAMESPACE_END.match(whole)):
            found.append(line._replace(after_blank=blank))
            blank = False
        elif not whole.strip():
            blank = True
    return found


def opening_comment(text: str) -> list[Line]:
    """The first `///` comment of a file."""
    found = []
    for line in lines(text):
        if line.text.startswith("///"):
            found.append(line)
        elif found:
            break
    return found


def below_opening(text: str) -> list[Line]:
    """All lines of a file without its opening comment."""
    opening = set(opening_comment(text))
    return [line for line in lines(text) if line not in opening]


def includes(text: str) -> list[Line]:
    """The headers that a file includes, as it writes them."""
    found = [(line.number, INCLUDE.match(line.text)) for line in lines(without_comments(text))]
    return [Line(number, match[1]) for number, match in found if match]


def included_file(root: Path, path: str, included: str) -> str:
    """The path below the root of what a file includes; it need not exist."""
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), included))
    return beside if (root / beside).exists() else posixpath.normpath(included)


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
