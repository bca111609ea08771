"""Who finds the mistakes in how threads hand data to each other: counts for the table in common/emulator/README.md.

Usage: python -m exercises.who_finds PROGRAM TOOL [--jobs N] [--sample N] [--verbose]

PROGRAM is exercise_mutants, which has our solutions with each synchronisation removed, weakened or moved. TOOL is
`detector` with the program of the emulator, `tsan` with that of the preset emulator-tsan, and `racecheck` with that of the
preset cuda on a GPU. A mistake is *reported* if the tool says what is wrong and where, *noticed* if the result is wrong or
the kernel does not end, and else it passes.
"""

from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
import argparse
import re
import subprocess
import sys

from . import mutants, task

TIME_LIMIT_S = 60
KINDS = [  # what stands in the line of the solution that is changed
    ("`__syncthreads()`", re.compile(r"__syncthreads\(")),
    ("`__syncwarp()`", re.compile(r"__syncwarp\(")),
    ("commits and waits of `cp.async`", re.compile(r"cp_async_")),
    ("`fence_async_proxy()`", re.compile(r"fence_async_proxy\(")),
    ("fences, commits and waits of products", re.compile(r"wgmma_")),
    ("arrivals, waits and counts of an `mbarrier`", re.compile(r"\.wait\(|\.arrive\(|\.init\(")),
    ("release and acquire of a flag", re.compile(r"store_release|load_acquire")),
]
REPORTS = {  # what a tool prints when it has found something
    "detector": re.compile(r"FAILS  (order|writes|launch)"),
    "tsan": re.compile(r"WARNING: ThreadSanitizer"),
    "racecheck": re.compile(r"RACECHECK SUMMARY: (?!0 hazards)"),
}


def kind(one: task.Task, name: str) -> str:
    line = one.solution.splitlines()[int(name.split()[1]) - 1]
    return next(what for what, pattern in KINDS if pattern.search(line))


def outcome(command: list[str], reports: re.Pattern) -> str:
    try:
        done = subprocess.run(command, capture_output=True, timeout=TIME_LIMIT_S, check=False)
        printed, status = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as stuck:
        printed, status = (stuck.stdout or b"") + (stuck.stderr or b""), 1
    if reports.search(printed.decode(errors="replace")):
        return "reported"
    return "passes" if status == 0 else "noticed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("tool", choices=REPORTS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sample", type=int, help="at most so many mistakes of a kind, evenly chosen")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    chosen = [
        (one, name)
        for one in task.find()
        for name in mutants.mutants(one)
        if name not in one.harmless
    ]
    if arguments.sample:
        of_kind = defaultdict(list)
        for one, name in chosen:
            of_kind[kind(one, name)].append((one, name))
        chosen = [pair for all_of in of_kind.values() for pair in all_of[:: -(-len(all_of) // arguments.sample)]]
    under = ["compute-sanitizer", "--tool", "racecheck"] if arguments.tool == "racecheck" else []

    def find(pair: tuple[task.Task, str]) -> str:
        one, name = pair
        what = outcome([*under, arguments.program, one.number, name], REPORTS[arguments.tool])
        if arguments.verbose:
            print(f"{one.number} {name}: {what}", file=sys.stderr, flush=True)
        return what

    with ThreadPoolExecutor(arguments.jobs) as pool:
        outcomes = list(pool.map(find, chosen))
    counts: dict[str, Counter] = defaultdict(Counter)
    for (one, name), what in zip(chosen, outcomes):
        counts[kind(one, name)][what] += 1
    print("| mistakes at | in all | reported | noticed | pass |\n| --- | --: | --: | --: | --: |")
    for what, _ in KINDS:
        if what in counts:
            of = counts[what]
            print(f"| {what} | {of.total()} | {of['reported']} | {of['noticed']} | {of['passes']} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
