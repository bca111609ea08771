"""The table of all stages in docs/stages.md."""

from itertools import groupby
from pathlib import Path
import re
from statistics import median

from . import rules, show, source
from .reading import Step
from .stage import PORT

PATH = "docs/stages.md"
BEGIN = "<!-- stages: written by ./tutorial diff --write -->"
END = "<!-- end of stages -->"


class PageError(Exception):
    """A page without a place for the table."""


def summary(steps: list[Step]) -> str:
    """How large the steps are."""
    if not steps:
        return "There are no stages yet.\n"
    grown = [step for step in steps if step.grows]
    ports = sum(step.stage.mark == PORT for step in grown)
    return (
        f"There are {len(steps)} stages, and {len(grown)} of them grow out of another one. The "
        f"median stage has {median(step.new for step in steps):g} lines of new reading. {ports} steps are marked as "
        f"ports to the GPU, and {len(rules.marked(steps))} as large steps.\n"
    )


def row(step: Step) -> str:
    stage = step.stage
    grows = f"[`{stage.said}`](../{stage.parent})" if step.code else stage.said or "?"
    mark = f"{stage.mark}: {stage.reason}".replace("|", r"\|") if stage.mark else ""
    cells = [f"[`{stage.name}`](../{stage.path})", grows, *show.numbers(step), mark]
    return "| " + " | ".join(cells) + " |"


def table(root: Path, steps: list[Step]) -> str:
    """A heading and a table for each chapter, in it a line for each operator, and then one for each of its stages."""
    parts = [summary(steps)]
    for chapter, group in groupby(steps, lambda step: step.stage.chapter):
        readme = root / chapter / "README.md"
        title = re.search(r"^# (.*)", source.read(readme), re.MULTILINE) if readme.exists() else None
        parts.append(f"## {title[1] if title else chapter}\n")
        lines = [
            "| stage | grows out of | removed | added | in new files | new reading | mark |",
            "| --- | --- | --: | --: | --: | --: | --- |",
        ]
        for operator, group in groupby(group, lambda step: step.stage.operator):
            lines += [f"| **{operator}** | | | | | | |"] if operator else []
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
