"""Where the stages are to get to, and where they are."""

from statistics import median

from . import rules
from .reading import Step


def table(steps: list[Step]) -> str:
    """Each goal beside what it is today."""
    middle = median(step.new for step in steps) if steps else 0
    rows = [
        ("", "today", "goal"),
        ("numbered stages", f"{len(steps)}", f"at most {rules.STAGES}"),
        ("median new reading of a stage, in lines", f"{middle:g}", f"at most {rules.MEDIAN}"),
        (
            f"stages over their limit of {rules.LIMIT} lines, or {rules.PORT_LIMIT} for a port to the GPU",
            f"{len(rules.over_the_limit(steps))}",
            "none",
        ),
        (
            "steps with a mark, without ports to the GPU",
            f"{len(rules.marked(steps))} of {sum(step.grows for step in steps)}",
            f"at most 1 in {rules.MARKED_ONE_IN}",
        ),
    ]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() + "\n" for row in rows)
