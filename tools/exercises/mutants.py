"""Our solutions with each of their synchronisations removed, weakened, or moved across a neighbour.

Each of them is wrong, also where its numbers come out right, unless the exercise's TOML file lists it under `harmless`
with the reason.
"""

import re

from .task import Task, find

# A statement of one line that orders something.
SYNCHRONISATION = re.compile(
    r"__syncthreads\(\)|__syncwarp\(|\.wait\(|\.arrive\(|cp_async_wait<|cp_async_commit\(|fence_async_proxy\(|"
    r"store_release\(|load_acquire\(|wgmma_commit\(|wgmma_wait<|wgmma_fence\("
)
WEAKER = [
    (re.compile(r"__syncthreads\(\)"), "__syncwarp()"),
    (re.compile(r"__syncwarp\(\)"), "(void)0"),
    (re.compile(r"store_release\((.*?), (.*?)\);"), r"store_relaxed(\1, \2);"),
    (re.compile(r"store_release\((.*?), (.*?)\);"), r"*(\1) = \2;"),
    (re.compile(r"load_acquire\("), "load_relaxed("),
    (re.compile(r"load_acquire\("), "*("),
    (re.compile(r"(cp_async_wait|wgmma_wait)<(\d)>"), lambda match: f"{match[1]}<{int(match[2]) + 1}>"),
]
COUNT = re.compile(r"\.init\((\d+)\)")  # of a barrier in shared memory, in the skeleton
KINDS = [  # what stands in the line of the solution that is changed
    ("`__syncthreads()`", re.compile(r"__syncthreads\(")),
    ("`__syncwarp()`", re.compile(r"__syncwarp\(")),
    ("commits and waits of `cp.async`", re.compile(r"cp_async_")),
    ("`fence_async_proxy()`", re.compile(r"fence_async_proxy\(")),
    ("fences, commits and waits of products", re.compile(r"wgmma_")),
    ("arrivals, waits and counts of an `mbarrier`", re.compile(r"\.wait\(|\.arrive\(|\.init\(")),
    ("release and acquire of a flag", re.compile(r"store_release|load_acquire")),
]
RACECHECK_KINDS = [what for what, _ in KINDS[:3]]  # what NVIDIA's racecheck follows
PARTS = 8  # programs for racecheck, which run side by side
STATEMENT = re.compile(r"^( *)[^ /}#].*;\n$")  # a whole one


def mutants(task: Task) -> dict[str, str]:
    """The text of each, by a name such as "line 31: removed"."""
    lines = task.solution.splitlines(keepends=True)
    start, end = task.solution_lines
    texts = {}

    def add(i: int, what: str, changed: list[str]) -> None:
        text = "".join(changed)
        if text != task.solution and text not in texts.values():
            texts[f"line {i + 1} {what}"] = text

    for i, line in enumerate(lines):
        if COUNT.search(line):
            less = COUNT.sub(lambda match: f".init({int(match[1]) - 1})", line)
            add(i, "counts one less", lines[:i] + [less] + lines[i + 1 :])
    for i in range(start, end):
        line = lines[i]
        if not SYNCHRONISATION.search(line.split("//")[0]) or not (own := STATEMENT.match(line)):
            continue
        # Without the store of a flag the next block waits forever.
        if "store_release" not in line:
            add(i, "removed", lines[:i] + ["\n"] + lines[i + 1 :])
        for number, (pattern, weaker) in enumerate(WEAKER):
            if pattern.search(line):
                add(i, f"weakened {number}", lines[:i] + [pattern.sub(weaker, line)] + lines[i + 1 :])
        for j, what in ((i - 1, "up"), (i + 1, "down")):
            other = STATEMENT.match(lines[j]) if start <= j < end else None
            if other and other[1] == own[1] and not SYNCHRONISATION.search(lines[j]):
                changed = list(lines)
                changed[i], changed[j] = lines[j], line
                add(i, f"moved {what}", changed)
    return texts


def kind(one: Task, name: str) -> str:
    line = one.solution.splitlines()[int(name.split()[1]) - 1]
    return next(what for what, pattern in KINDS if pattern.search(line))


def mistakes() -> list[tuple[Task, str]]:
    """Those of all exercises that are none of the harmless ones."""
    return [(one, name) for one in find() for name in mutants(one) if name not in one.harmless]


def parts() -> list[list[tuple[Task, str]]]:
    """What each of the programs for racecheck has: the mistakes in what it follows, dealt out in turn."""
    chosen = [pair for pair in mistakes() if kind(*pair) in RACECHECK_KINDS]
    return [chosen[i::PARTS] for i in range(PARTS)]
