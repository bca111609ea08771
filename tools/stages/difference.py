"""What two files do not share: a patience diff, which first pairs the lines that occur once in each of them.

White space does not count, neither inside a line nor in where a line is broken.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from difflib import SequenceMatcher
import re
from typing import NamedTuple

from . import source
from .source import Line

CONTEXT = 3  # unchanged lines around a change


class Row(NamedTuple):
    """A line of both files put together."""

    sign: str  # `-` removed, `+` added, a space where it is unchanged
    old: int | None  # the line's number in the file before, where it is there
    new: int | None
    text: str
    after_blank: bool  # whether an empty line stood in front of it


@dataclass(frozen=True)
class Difference:
    rows: list[Row]

    @property
    def removed(self) -> int:
        return sum(row.sign == "-" for row in self.rows)

    @property
    def added(self) -> int:
        return sum(row.sign == "+" for row in self.rows)

    @property
    def changed(self) -> int:
        return self.removed + self.added

    def hunks(self) -> list[tuple[str, list[Row]]]:
        """(heading, rows) of each change with the unchanged lines around it."""
        near = {
            i + distance
            for i, row in enumerate(self.rows)
            if row.sign != " "
            for distance in range(-CONTEXT, CONTEXT + 1)
        }
        result: list[tuple[int, list[Row]]] = []
        for i, row in enumerate(self.rows):
            if i in near:
                if i - 1 not in near or not result:
                    result.append((i, []))
                rows = result[-1][1]
                # An empty line between what was removed and what takes its place would part them.
                separate = bool(rows) and (rows[-1].sign, row.sign) != ("-", "+")
                rows.append(row._replace(after_blank=row.after_blank and separate))
        return [(self.heading(begin, rows), rows) for begin, rows in result]

    def heading(self, begin: int, rows: list[Row]) -> str:
        """Where a hunk is: its first lines and their numbers in both files, and the function that it begins in."""

        def place(numbers: list[int]) -> str:
            return f"{numbers[0] if numbers else 0},{len(numbers)}"

        old = place([row.old for row in rows if row.old is not None])
        new = place([row.new for row in rows if row.new is not None])
        function = next(
            (row.text for row in self.rows[:begin][::-1] if row.sign != "-" and FUNCTION.match(row.text)), ""
        )
        return f"@@ -{old} +{new} @@ {function}".rstrip()


# A line that a function or a type begins with: not indented, and none of those that only stand around them.
FUNCTION = re.compile(r"(?!(?:template|namespace|using|public|private|extern)\b)[A-Za-z_]")


def anchors(a: list[str], b: list[str]) -> list[tuple[int, int]]:
    """Pairs of lines that occur once in each list, as many as are in the same order in both."""
    counts = Counter(a), Counter(b)
    place = {line: j for j, line in enumerate(b) if counts[1][line] == 1}
    # The longest rising sequence. chains[n] has n + 1 pairs and the least last j, lasts[n], of all that long.
    chains: list[list[tuple[int, int]]] = []
    lasts: list[int] = []
    for i, line in enumerate(a):
        if counts[0][line] == 1 and line in place:
            j = place[line]
            n = bisect_left(lasts, j)
            chains[n : n + 1] = [[*(chains[n - 1] if n else []), (i, j)]]
            lasts[n : n + 1] = [j]
    return chains[-1] if chains else []


def matches(a: list[str], b: list[str]) -> list[tuple[int, int]]:
    """Pairs of equal lines, rising in both lists."""
    shorter = min(len(a), len(b))
    head = next((n for n in range(shorter) if a[n] != b[n]), shorter)
    tail = next((n for n in range(shorter - head) if a[-1 - n] != b[-1 - n]), shorter - head)
    a_end, b_end = len(a) - tail, len(b) - tail
    found = [(n, n) for n in range(head)]
    if fixed := anchors(a[head:a_end], b[head:b_end]):
        i = j = head
        for x, y in [(head + x, head + y) for x, y in fixed]:
            found += [(i + m, j + n) for m, n in matches(a[i:x], b[j:y])]
            found.append((x, y))
            i, j = x + 1, y + 1
        found += [(i + m, j + n) for m, n in matches(a[i:a_end], b[j:b_end])]
    else:
        for x, y, size in SequenceMatcher(None, a[head:a_end], b[head:b_end], autojunk=False).get_matching_blocks():
            found += [(head + x + n, head + y + n) for n in range(size)]
    return found + [(a_end + n, b_end + n) for n in range(tail)]


def key(text: str) -> str:
    return "".join(text.split())


def rows_of(old: list[Line], new: list[Line]) -> list[Row]:
    """The lines of both files put together."""
    result: list[Row] = []
    i = j = 0
    for x, y in [*matches([key(line.text) for line in old], [key(line.text) for line in new]), (len(old), len(new))]:
        removed, added = old[i:x], new[j:y]
        if key("".join(line.text for line in removed)) == key("".join(line.text for line in added)):
            result += [Row(" ", None, *line) for line in added]  # broken at other places
        else:
            result += [Row("-", line.number, None, *line[1:]) for line in removed]
            result += [Row("+", None, *line) for line in added]
        if x < len(old):
            result.append(Row(" ", old[x].number, *new[y]))
        i, j = x + 1, y + 1
    return result


def slide(rows: list[Row]) -> None:
    """Where a block of added lines begins with the closing brace that also follows it, takes the latter instead: it is
    the same change, shown from a function's name to its end. Likewise with removed lines."""
    begin = end = 0
    while end < len(rows):
        if rows[end].sign != " ":
            end += 1
            continue
        while (
            end < len(rows)
            and rows[end].sign == " "
            and {row.sign for row in rows[begin:end]} in ({"+"}, {"-"})
            and rows[begin].text == rows[end].text
            and rows[begin].text.lstrip().startswith("}")
        ):
            first, last = rows[begin], rows[end]
            if first.sign == "+":
                rows[begin], rows[end] = first._replace(sign=" ", old=last.old), last._replace(sign="+", old=None)
            else:
                rows[begin], rows[end] = first._replace(sign=" ", new=last.new), last._replace(sign="-", new=None)
            begin, end = begin + 1, end + 1
        end += 1
        begin = end


def compare(old: str, new: str, lines: Callable[[str], list[Line]] = source.code) -> Difference:
    """The difference of two files, from their texts; `lines` takes from a text the lines to compare."""
    rows = rows_of(lines(old), lines(new))
    slide(rows)
    return Difference(rows)
