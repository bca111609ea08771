"""The list of the stages that have more new reading than the limit, each with its lines of it: it may only get shorter.

A line of it is an entry, `"NN_chapter/operator/N_name.cu" = LINES`, a comment or empty.
"""

from pathlib import Path
import re
from typing import NamedTuple

from . import source

PATH = "tools/stages/over_the_limit.toml"
ENTRY = re.compile(r'"([^"]+)" = (\d+)')


class ListError(Exception):
    """A line of the list that is no entry."""


class Entry(NamedTuple):
    lines: int  # of new reading that the stage may have
    at: int  # the entry's line in the list


def entries(root: Path) -> dict[str, Entry]:
    """The entries by the paths of their stages."""
    found = {}
    for number, line in enumerate(text(root).splitlines(), 1):
        if match := ENTRY.fullmatch(line):
            found[match[1]] = Entry(int(match[2]), number)
        elif line and not line.startswith("#"):
            raise ListError(f'{PATH}:{number}: this is no entry; write it as "PATH" = LINES')
    return found


def text(root: Path) -> str:
    """The list as it stands; empty where there is none."""
    return source.read(root / PATH) if (root / PATH).exists() else ""


def lowered(text: str, needed: dict[str, int]) -> str:
    """The list without the entries that are not needed any more, and with smaller numbers where stages got smaller.

    `needed` has the lines of new reading of the stages over the limit.
    """

    def kept(line: str) -> str:
        match = ENTRY.fullmatch(line.rstrip())
        if not match:
            return line
        path, lines = match[1], int(match[2])
        return f'"{path}" = {min(lines, needed[path])}\n' if path in needed else ""

    return "".join(map(kept, text.splitlines(keepends=True)))
