"""The table of all stages in docs/stages.md."""

from itertools import groupby
from pathlib import Path
import re
from statistics import median

from . import source
from .difference import Step
from .stage import PORT

PATH = "docs/stages.md"
BEGIN = "<!-- stages: written by ./tutorial diff --write -->"
END = "<!-- end of stages -->"


class PageError(Exception):
    """A page without a place for the table."""


def summary(steps: list[Step]) -> str:
    """How large the steps are."""
    grown = [(stage, code) for stage, code in steps if code]
    if not grown:
        return "No stage says yet what it grows out of.\n"
    ports = sum(stage.mark == PORT for stage, _ in grown)
    others = sum(stage.mark not in (None, PORT) for stage, _ in grown)
    middle = median(code.changed for _, code in grown)
    return (
        f"{len(grown)} of {len(steps)} stages grow out of another one. The median step changes {middle:g} lines. "
        f"{ports} steps are marked as ports to the GPU, and {others} carry another mark.\n"
    )


def row(step: Step) -> str:
    stage, code = step
    grows = f"[`{stage.said}`](../{stage.parent})" if code else stage.said or "?"
    removed, added = (str(code.removed), str(code.added)) if code else ("", "")
    mark = f"{stage.mark}: {stage.reason}".replace("|", r"\|") if stage.mark else ""
    cells = [f"[`{stage.name}`](../{stage.path})", grows, removed, added, mark]
    return "| " + " | ".join(cells) + " |"


def table(root: Path, steps: list[Step]) -> str:
    """A heading and a table for each chapter, in it a line for each operator, and then one for each of its stages."""
    parts = [summary(steps)]
    for chapter, group in groupby(steps, lambda step: step.stage.chapter):
        readme = root / chapter / "README.md"
        title = re.search(r"^# (.*)", source.read(readme), re.MULTILINE) if readme.exists() else None
        parts.append(f"## {title[1] if title else chapter}\n")
        lines = ["| stage | grows out of | removed | added | mark |", "| --- | --- | --: | --: | --- |"]
        for operator, group in groupby(group, lambda step: step.stage.operator):
            lines += [f"| **{operator}** | | | | |"] if operator else []
            lines += map(row, group)
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def updated(text: str, root: Path, steps: list[Step]) -> str:
    """The page with its table written anew."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise PageError(f"{PATH} needs the lines `{BEGIN}` and `{END}` around its table, once each")
    before, rest = text.split(BEGIN)
    behind = rest.split(END)[1]
    return f"{before}{BEGIN}\n\n{table(root, steps)}\n{END}{behind}"
