"""Who finds the mistakes in how threads hand data to each other: counts for the table in common/emulator/README.md.

Usage: python -m exercises.who_finds PROGRAM TOOL [--jobs N] [--sample N] [--seconds S]

PROGRAM is exercise_mutants, which has our solutions with each synchronisation removed, weakened or moved. TOOL is
`detector` with the program of the emulator, `tsan` with that of the preset emulator-tsan, and `racecheck` with those of
the preset cuda on a GPU, which are called PROGRAM_0 to PROGRAM_7 and have only the mistakes in what racecheck follows. A
mistake is *reported* if the tool says what is wrong and where, *noticed* if the result is wrong or the kernel does not end,
and else it passes. Each is printed as soon as it is known.

racecheck instruments all kernels of a program when that starts, which takes longer than to run them. So each of its
programs has some of the mistakes, checks them in one process, and all programs run side by side.
"""

from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time

from . import mutants, task, variants

TIME_LIMIT_S = 60
RACECHECK_LIMIT_S = 10  # of one mistake, in a program that has started
REPORTS = {  # what a tool prints when it has found something
    "detector": re.compile(r"FAILS  (order|writes|launch)"),
    "tsan": re.compile(r"WARNING: ThreadSanitizer"),
    "racecheck": re.compile(r"Race reported between|[Hh]azard detected|Potential \w+ hazard"),
}
Mistake = tuple[task.Task, str]


class Table:
    """What became of each mistake."""

    def __init__(self) -> None:
        self.outcomes: dict[tuple[str, str], str] = {}
        self.kinds: dict[tuple[str, str], str] = {}
        self.lock = threading.Lock()

    def note(self, mistake: Mistake, outcome: str) -> None:
        """What is reported stays so."""
        one, name = mistake
        key = one.number, name
        with self.lock:
            if self.outcomes.get(key) in ("reported", outcome):
                return
            self.outcomes[key] = outcome
            self.kinds[key] = mutants.kind(one, name)
            print(f"{one.number} {name}: {outcome}", flush=True)

    def print(self) -> None:
        counts: dict[str, Counter] = defaultdict(Counter)
        for key, outcome in self.outcomes.items():
            counts[self.kinds[key]][outcome] += 1
        print("| mistakes at | in all | reported | noticed | pass |\n| --- | --: | --: | --: | --: |")
        for what, _ in mutants.KINDS:
            if what in counts:
                of = counts[what]
                print(f"| {what} | {of.total()} | {of['reported']} | {of['noticed']} | {of['passes']} |")


def outcome_of(command: list[str], reports: re.Pattern) -> str:
    try:
        done = subprocess.run(command, capture_output=True, timeout=TIME_LIMIT_S, check=False)
        printed, status = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as stuck:
        printed, status = (stuck.stdout or b"") + (stuck.stderr or b""), 1
    if reports.search(printed.decode(errors="replace")):
        return "reported"
    return "passes" if status == 0 else "noticed"


def meant(line: str, part: list[Mistake]) -> Mistake | None:
    """The mistake whose kernel a report names: variants.py gives each a namespace and a file by its name."""
    named = [pair for pair in part if variants.space(*pair) in line]
    return max(named, key=lambda pair: len(variants.space(*pair)), default=None)


def kill(process: subprocess.Popen) -> None:
    """With the program that compute-sanitizer has started, which else keeps the pipe open."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def racecheck(program: str, part: list[Mistake], deadline: float, table: Table) -> None:
    """Notes what racecheck finds of the mistakes of a program: in one process, and in another one behind each that does
    not end, or after which the GPU takes no more calls."""
    left = list(part)
    while left and time.monotonic() < deadline:
        # Without a limit on what is printed: else it says no more behind the hundredth race.
        command = ["compute-sanitizer", "--tool", "racecheck", "--print-limit", "100000", program, "--several"]
        command += [word for one, name in left for word in (one.number, name)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True
        )
        end = threading.Timer(deadline - time.monotonic(), kill, [process])
        end.start()
        watch, current, begun, said = threading.Timer(0, kill), None, 0, []
        for line in process.stdout:
            said.append(line)
            if REPORTS["racecheck"].search(line) and (found := meant(line, part) or current):
                table.note(found, "reported")
            elif line.startswith("== status"):
                table.note(current, "passes" if line.split()[2] == "0" else "noticed")
                current = None
            elif line.startswith("== "):
                current = left[begun]
                begun += 1
                watch.cancel()
                watch = threading.Timer(RACECHECK_LIMIT_S, kill, [process])
                watch.start()
        watch.cancel()
        end.cancel()
        process.wait()
        if time.monotonic() >= deadline:
            return
        if begun == 0:
            print(f"{program} has checked nothing (status {process.returncode}):\n{''.join(said[-20:])}", flush=True)
            return
        if current:  # it does not end, or ends the process
            table.note(current, "noticed")
        left = left[begun:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("tool", choices=REPORTS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sample", type=int, help="at most so many mistakes of a kind, evenly chosen")
    parser.add_argument("--seconds", type=float, default=600, help="racecheck ends then, and the table has what is known")
    arguments = parser.parse_args()
    table = Table()
    if arguments.tool == "racecheck":
        deadline = time.monotonic() + arguments.seconds
        parts = mutants.parts()
        with ThreadPoolExecutor(len(parts)) as pool:
            calls = [
                pool.submit(racecheck, f"{arguments.program}_{i}", part, deadline, table) for i, part in enumerate(parts)
            ]
            for call in calls:
                call.result()
        table.print()
        print(f"{len(table.outcomes)} of {sum(map(len, parts))} mistakes were checked")
        return 0
    chosen = mutants.mistakes()
    if arguments.sample:
        of_kind = defaultdict(list)
        for pair in chosen:
            of_kind[mutants.kind(*pair)].append(pair)
        chosen = [pair for all_of in of_kind.values() for pair in all_of[:: -(-len(all_of) // arguments.sample)]]

    def find(pair: Mistake) -> None:
        table.note(pair, outcome_of([arguments.program, pair[0].number, pair[1]], REPORTS[arguments.tool]))

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(find, chosen))
    table.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
