"""What must hold of the stages, of what they grow out of, and of their new reading."""

from pathlib import Path, PurePosixPath
import re
from statistics import median

from . import source
from .reading import Step
from .stage import PORT, Mistake, Stage, is_stage

LIMIT = 200  # lines of new reading of a stage
PORT_LIMIT = 400  # of a port from the CPU to the GPU
MARKED_ONE_IN = 10  # of the stages that grow out of another one; ports from the CPU to the GPU are not counted

STAGES = 120  # in all
MEDIAN = 90  # lines of new reading of the stages, where there are many
MANY = 20

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


def place_mistake(stage: Stage) -> str | None:
    """What is wrong with a stage's place."""
    if stage.name != "dispatch":
        return None
    path = PurePosixPath(stage.path)
    return f"is no stage: it chooses among the kernels and has no number; call it {path.parent}/dispatch/dispatch{path.suffix}"


def mark_mistake(root: Path, stage: Stage) -> str | None:
    """What is wrong with a stage's mark."""
    if stage.mark == PORT and not stage.path.endswith(".cu"):
        return f"is marked as a {PORT}, and it is no .cu file; take the mark away"
    if stage.mark == PORT and not stage.parent.endswith(".cpp") and has_kernel(source.read(root / stage.parent)):
        return f"is marked as a {PORT}, and {stage.said} runs on the GPU already; take the mark away"
    return None


def limit(stage: Stage) -> int | None:
    """How many lines of new reading a stage may have; None if any number."""
    return {None: LIMIT, PORT: PORT_LIMIT}.get(stage.mark)


def over_the_limit(steps: list[Step]) -> list[Step]:
    """The stages with more new reading than they may have."""
    return [step for step in steps if (most := limit(step.stage)) is not None and step.new > most]


def length_mistake(step: Step) -> str:
    """What is wrong with a stage over the limit."""
    mark = "" if step.stage.mark else ", or mark it with a reason (see CONTRIBUTING.md)"
    return (
        f"has {step.new} lines of new reading ({step.own} of its own and {step.in_files} in files that are read "
        f"here for the first time), and {limit(step.stage)} is the limit; make the step smaller{mark}"
    )


def marked(steps: list[Step]) -> list[Step]:
    """The stages with a mark; ports from the CPU to the GPU are not counted."""
    return [step for step in steps if step.grows and step.stage.mark not in (None, PORT)]


def share(steps: list[Step]) -> list[Mistake]:
    """That not too many stages have a mark."""
    found, grown = marked(steps), sum(step.grows for step in steps)
    if len(found) * MARKED_ONE_IN <= grown:
        return []
    least = min(found, key=lambda step: step.new)
    what = "needs none, take it away" if least.new <= LIMIT else "needs it least, make its step smaller"
    text = (
        f"{len(found)} stages have a mark other than `{PORT}`, and {grown // MARKED_ONE_IN} may, one in "
        f"{MARKED_ONE_IN} of those that grow out of another; this one, with {least.new} lines of new reading, {what}"
    )
    return [Mistake(least.stage.path, least.stage.line, text)]


def whole(steps: list[Step]) -> list[Mistake]:
    """What is wrong with all stages together."""
    found, last = [], steps[-1].stage if steps else None
    if len(steps) > STAGES:
        text = f"is one of {len(steps)} stages, and there may be {STAGES}; what brings no idea is a variant of dispatch"
        found.append(Mistake(last.path, 1, text))
    if len(steps) > MANY and (middle := median(step.new for step in steps)) > MEDIAN:
        longest = max((step for step in steps if step.new <= LIMIT), key=lambda step: step.new, default=steps[-1]).stage
        text = f"half of all stages have more than {middle:g} lines of new reading, and {MEDIAN} is the limit; shorten some"
        found.append(Mistake(longest.path, longest.line, text))
    return found


def check(root: Path, steps: list[Step]) -> list[Mistake]:
    """All that is wrong with the stages."""
    stages = {step.stage.path: step.stage for step in steps}
    found = []
    for stage in stages.values():
        found += stage.mistakes
        if text := place_mistake(stage):
            found.append(Mistake(stage.path, 1, text))
        texts = [parent_mistake(root, stage, stages), mark_mistake(root, stage) if stage.parent in stages else None]
        found += [Mistake(stage.path, stage.line, text) for text in texts if text]
    for step in over_the_limit(steps):
        found.append(Mistake(step.stage.path, step.stage.line, length_mistake(step)))
    return found + cycles(stages) + share(steps) + whole(steps)
