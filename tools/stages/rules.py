"""What must hold of the stages and of what they grow out of."""

from pathlib import Path, PurePosixPath
import re

from . import source
from .difference import Difference, Step
from .stage import PORT, Mistake, Stage, is_stage

LIMIT = 120  # lines of code, removed and added together, that a stage without a mark may change
MARKED_ONE_IN = 5  # of the stages that grow out of another one; ports from the CPU to the GPU are not counted

KERNEL = re.compile(r"__global__|<<<|\blaunch\s*\(")


def has_kernel(text: str) -> bool:
    """Whether a file defines or starts a kernel."""
    return any(KERNEL.search(line.text) for line in source.code(text))


def parent_mistake(root: Path, stage: Stage, stages: dict[str, Stage]) -> str | None:
    """What is wrong with the stage that is named."""
    if stage.said == "nothing":
        folder = PurePosixPath(stage.path).parent
        before = [s for s in map(PurePosixPath, stages) if s.parent == folder and stages[str(s)].number < stage.number]
        if before:
            return f"only the first stage of an operator grows out of nothing; name a stage, such as {before[-1].name}"
        return None
    if stage.parent is None or stage.parent in stages:
        return None
    if (root / stage.parent).exists() and not is_stage(stage.parent):
        return f"grows out of {stage.said}, which is no stage; name a numbered file, such as 1_recurrent.cpp"
    return (
        f"grows out of {stage.said}, which does not exist; name a file of its folder, or a path from the project's root"
    )


def cycles(stages: dict[str, Stage]) -> list[Mistake]:
    """Each cycle once, at the first of its stages."""
    found, done = [], set()
    for path in stages:
        seen: list[str] = []
        step: str | None = path
        while step in stages and step not in done and step not in seen:
            seen.append(step)
            step = stages[step].parent
        if step in seen:
            cycle = seen[seen.index(step) :]
            way = f", by way of {', '.join(cycle[1:])}" if cycle[1:] else ""
            text = f"grows out of itself{way}; name a stage that comes before it"
            found.append(Mistake(cycle[0], stages[cycle[0]].line, text))
        done.update(seen)
    return found


def mark_mistake(root: Path, stage: Stage, code: Difference) -> str | None:
    """What is wrong with a stage's mark, or that it needs one."""
    if stage.mark is None and code.changed > LIMIT:
        return (
            f"changes {code.changed} lines of code ({code.removed} removed, {code.added} added) of {stage.said}, and "
            f"{LIMIT} is the limit; make the step smaller, or mark it with a reason (see CONTRIBUTING.md)"
        )
    if stage.mark == PORT and not stage.path.endswith(".cu"):
        return f"is marked as a {PORT}, and it is no .cu file; take the mark away"
    if stage.mark == PORT and not stage.parent.endswith(".cpp") and has_kernel(source.read(root / stage.parent)):
        return f"is marked as a {PORT}, and {stage.said} runs on the GPU already; take the mark away"
    return None


def share(grown: list[Step]) -> list[Mistake]:
    """That not too many stages have a mark."""
    marked = [step for step in grown if step.stage.mark not in (None, PORT)]
    if len(marked) * MARKED_ONE_IN <= len(grown):
        return []
    stage, code = min(marked, key=lambda step: step.code.changed)
    what = "needs none, take it away" if code.changed <= LIMIT else "needs it least, make its step smaller"
    text = (
        f"{len(marked)} stages have a mark other than `{PORT}`, and {len(grown) // MARKED_ONE_IN} may, one in "
        f"{MARKED_ONE_IN} of those that grow out of another; this one, of {code.changed} changed lines, {what}"
    )
    return [Mistake(stage.path, stage.line, text)]


def check(root: Path, steps: list[Step]) -> list[Mistake]:
    """All that is wrong with the stages."""
    stages = {stage.path: stage for stage, _ in steps}
    found = []
    for stage, code in steps:
        found += stage.mistakes
        texts = [parent_mistake(root, stage, stages), mark_mistake(root, stage, code) if code else None]
        found += [Mistake(stage.path, stage.line, text) for text in texts if text]
    return found + cycles(stages) + share([step for step in steps if step.code])
