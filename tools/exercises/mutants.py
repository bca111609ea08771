"""Our solutions with each of their synchronisations removed, weakened, or moved across a neighbour.

Each of them is wrong, also where its numbers come out right, unless the exercise's TOML file lists it under `harmless`
with the reason.
"""

import re

from .task import Task

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
