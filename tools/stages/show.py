"""A difference, the files that a stage brings, and the table of all stages, as text for a terminal."""

import os
from typing import TextIO

from .difference import Difference
from .reading import Step

BOLD, CYAN, GREEN, RED, PLAIN = "\x1b[1m", "\x1b[36m", "\x1b[32m", "\x1b[31m", "\x1b[0m"


def has_colours(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(colour: str, text: str, colours: bool) -> str:
    return f"{colour}{text}{PLAIN}" if colours else text


def difference(old: str, new: str, notes: list[str], shown: Difference, colours: bool) -> str:
    """A unified diff of two files, with notes between their paths and what changes."""
    result = [paint(BOLD, f"--- {old}", colours), paint(BOLD, f"+++ {new}", colours), *notes]
    for heading, rows in shown.hunks():
        result.append(paint(CYAN, heading, colours))
        for row in rows:
            if row.after_blank:
                result.append("")  # not counted, but code without empty lines is hard to read
            text = f"{row.sign}{row.text}".rstrip()
            result.append(paint({"-": RED, "+": GREEN}[row.sign], text, colours) if row.sign != " " else text)
    return "\n".join(result) + "\n"


def files(step: Step) -> str:
    """The files that are read for the first time at a stage, a line for each."""
    if not step.files:
        return ""
    width = max(len(file.path) for file in step.files)
    rows = [f"  {file.path:<{width}}  {lines_of_code(file.lines)}" for file in step.files]
    return "\n".join(["", "read here for the first time:", *rows]) + "\n"


def lines_of_code(count: int) -> str:
    return f"{count} line{'s' * (count != 1)} of code"


def counts(step: Step) -> str:
    """What the new reading of a stage consists of, and how much it is."""
    text = lines_of_code(step.own)
    if step.code:
        text = f"{lines_of_code(step.code.removed)} removed, {step.code.added} added"
    if step.files:
        text += f", {step.in_files} in {len(step.files)} file{'s' * (len(step.files) != 1)} read here for the first time"
    return f"{text}; {step.new} line{'s' * (step.new != 1)} of new reading"


def notes(step: Step, others: list[str]) -> list[str]:
    """What to know of a stage before its diff; `others` are the stages that have its name, too."""
    found = [counts(step)]
    if step.stage.mark:
        found.append(f"{step.stage.mark}: {step.stage.reason}")
    if others:
        found.append(f"the chapter has other stages of this name: {' '.join(others)}")
    return found


def numbers(step: Step) -> list[str]:
    """Cells of a table: lines removed, added and in files read for the first time, and their sum."""
    changed = [str(step.code.removed), str(step.code.added)] if step.code else ["", str(step.own)]
    return [*changed, str(step.in_files), str(step.new)]


def table(steps: list[Step]) -> str:
    """A line for each stage."""
    cells = [["chapter", "stage", "grows out of", "removed", "added", "in new files", "new reading", "mark"]]
    for step in steps:
        stage = step.stage
        cells.append([stage.chapter, stage.full_name, stage.said or "?", *numbers(step), stage.mark or ""])
    widths = [max(len(cell) for cell in column) for column in zip(*cells)]

    def line(row) -> str:
        padded = [cell.rjust(w) if 3 <= i <= 6 else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths))]
        return "  ".join(padded).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([line(cells[0]), rule, *map(line, cells[1:])]) + "\n"
