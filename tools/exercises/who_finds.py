"""Who finds the mistakes in how threads hand data to each other: counts for the table in common/emulator/README.md.

Usage: python -m exercises.who_finds PROGRAM TOOL [--jobs N] [--sample N] [--verbose]

PROGRAM is exercise_mutants, which has our solutions with each synchronisation removed, weakened or moved. TOOL is
`detector` with the program of the emulator, `tsan` with that of the preset emulator-tsan, and `racecheck` with that of the
preset cuda on a GPU. For racecheck one process checks them all, since its start takes the most time; one that does not
end, or after which the GPU takes no more calls, costs another start. A mistake is *reported* if the tool says what is wrong and where, *noticed* if the result is wrong or
the kernel does not end, and else it passes.
"""

from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
import argparse
import re
import subprocess
import sys
import threading

from . import mutants, task

TIME_LIMIT_S = 60
FIRST_LIMIT_S = 120  # until the first begins: a program with all of their kernels is loaded
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
    "racecheck": re.compile(r"Race reported between|[Hh]azard detected|Potential \w+ hazard"),
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


def outcomes_of_one_process(program: str, chosen: list[tuple[task.Task, str]], verbose: bool) -> list[str]:
    """What racecheck finds of each, in as few processes as may be."""
    results: list[str] = []
    while len(results) < len(chosen):
        left = chosen[len(results) :]
        pairs = [word for one, name in left for word in (one.number, name)]
        command = ["compute-sanitizer", "--tool", "racecheck", program, "--several", *pairs]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        before, said = len(results), ""
        # One that waits forever: the process is killed, and its output ends.
        watch = threading.Timer(FIRST_LIMIT_S, process.kill)
        watch.start()
        for line in process.stdout:
            if line.startswith("== ") and not line.startswith("== status"):
                said = ""
                watch.cancel()
                watch = threading.Timer(TIME_LIMIT_S, process.kill)
                watch.start()
            elif line.startswith("== status"):
                is_reported = REPORTS["racecheck"].search(said)
                results.append("reported" if is_reported else "passes" if line.split()[2] == "0" else "noticed")
                if verbose:
                    one, name = left[len(results) - before - 1]
                    print(f"{one.number} {name}: {results[-1]}", file=sys.stderr, flush=True)
            said += line
        watch.cancel()
        status = process.wait()
        if len(results) == before and not said.startswith("== "):
            raise SystemExit(f"compute-sanitizer has checked nothing (status {status}):\n{said}")
        if len(results) < len(chosen) and (status != 4 or len(results) == before):  # killed, or crashed, within one
            results.append("reported" if REPORTS["racecheck"].search(said) else "noticed")
            if verbose:
                one, name = chosen[len(results) - 1]
                print(f"{one.number} {name}: {results[-1]}, and does not end", file=sys.stderr, flush=True)
    return results


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
    def find(pair: tuple[task.Task, str]) -> str:
        one, name = pair
        what = outcome([arguments.program, one.number, name], REPORTS[arguments.tool])
        if arguments.verbose:
            print(f"{one.number} {name}: {what}", file=sys.stderr, flush=True)
        return what

    if arguments.tool == "racecheck":
        outcomes = outcomes_of_one_process(arguments.program, chosen, arguments.verbose)
    else:
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
