"""A difference, and the table of all stages, as text for a terminal."""

import os
from typing import TextIO

from .difference import Difference, Step
from .stage import Stage

BOLD, CYAN, GREEN, RED, PLAIN = "\x1b[1m", "\x1b[36m", "\x1b[32m", "\x1b[31m", "\x1b[0m"


def has_colours(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def difference(stage: Stage, code: Difference, shown: Difference, colours: bool) -> str:
    """A unified diff of `shown`, below both paths and the number of lines of code that change."""

    def paint(colour: str, text: str) -> str:
        return f"{colour}{text}{PLAIN}" if colours else text

    result = [paint(BOLD, f"--- {stage.parent}"), paint(BOLD, f"+++ {stage.path}"), counts(code)]
    if stage.mark:
        result.append(f"{stage.mark}: {stage.reason}")
    for heading, rows in shown.hunks():
        result.append(paint(CYAN, heading))
        for row in rows:
            if row.after_blank:
                result.append("")  # not counted, but code without empty lines is hard to read
            text = f"{row.sign}{row.text}".rstrip()
            result.append(paint({"-": RED, "+": GREEN}[row.sign], text) if row.sign != " " else text)
    return "\n".join(result) + "\n"


def counts(code: Difference) -> str:
    return f"{code.removed} line{'s' * (code.removed != 1)} of code removed, {code.added} added"


def table(steps: list[Step]) -> str:
    """A line for each stage."""
    cells = [("chapter", "stage", "grows out of", "removed", "added", "mark")]
    for stage, code in steps:
        removed, added = (str(code.removed), str(code.added)) if code else ("", "")
        cells.append((stage.chapter, stage.full_name, stage.said or "?", removed, added, stage.mark or ""))
    widths = [max(len(cell) for cell in column) for column in zip(*cells)]

    def line(row) -> str:
        padded = [cell.rjust(w) if i in (3, 4) else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths))]
        return "  ".join(padded).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([line(cells[0]), rule, *map(line, cells[1:])]) + "\n"
