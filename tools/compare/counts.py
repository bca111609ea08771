"""What the emulator counts of each kernel: true on every machine, so that who has no GPU can compare stages, too.

Threads, barriers and bytes are counted while the kernels run; operations are what a stage states.
"""

import json
from pathlib import Path

from .plan import Job, jobs
from .progress import Progress
from .programs import Program, run, size_arguments
from .store import one_line, write_atomically
from .tables import table

PROBLEM = {"B": 1, "H": 1, "Dk": 64, "Dv": 64, "seed": 1}
LENGTHS = (64, 256, 1024)
TIMEOUT_S = 600.0

COLUMNS = ("launches", "blocks", "threads", "barriers", "atomics", "bytes_read", "bytes_written")


def quantity(value: float | None) -> str:
    """A count with three digits and k, M, G, T."""
    if value is None:
        return ""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def of_job(job: Job, problem: dict) -> tuple[list[dict], list[str]]:
    """The counts of a chapter's kernels at one length, and what went wrong."""
    arguments = size_arguments([part.operator for part in job.parts], {**problem, "L": job.L})
    names = dict.fromkeys(stage.name for part in job.parts for stage in part.stages)
    arguments += ["--seed", str(problem["seed"]), "--repeat", "0", "--stage", ",".join(names)]
    outcome = run(job.program.path, arguments, TIMEOUT_S)
    if outcome.results is None:
        return [], [f"{job.label}: {outcome.reason}"]
    found, failed = [], []
    for result in outcome.results["results"]:
        for stage in result["stages"]:
            if stage["runs_on"] != "emulator" or stage["skipped"] is not None:
                continue
            if not stage["passed"]:
                failed.append(f"{job.program.chapter} {result['operator']} {stage['name']}: {one_line(stage['failure'])}")
                continue
            found.append(
                {
                    "chapter": job.program.chapter,
                    "operator": result["operator"],
                    "stage": stage["name"],
                    "L": job.L,
                    "least_bytes": stage["bytes"],
                    "work": stage["work"],
                    **{name: stage["counts"][name] for name in COLUMNS},
                }
            )
    return found, failed


def count(programs: list[Program], lengths, problem: dict, path: Path) -> tuple[list[dict], list[str]]:
    """Runs the GPU stages of the chapters in the emulator, and writes what was counted as JSON."""
    todo = jobs(programs, lengths, cpu=False)
    # A thread of the emulator takes microseconds a step: time goes by stages and length.
    planned = [0.5 + 0.3 * len(job) * job.L / 64 for job in todo]
    progress = Progress(sum(planned), len(todo))
    found, failed = [], []
    for job, seconds in zip(todo, planned):
        progress.begin(job.label.replace("on the GPU", "in the emulator"))
        more, wrong = of_job(job, problem)
        found += more
        failed += wrong
        for line in wrong:
            progress.say(line)
        progress.end(seconds)
    progress.close()
    write_atomically(path, json.dumps({"problem": problem, "counts": found}, indent=1) + "\n")
    return found, failed


def report(found: list[dict], problem: dict) -> str:
    """Tables of the counts as Markdown: a table an operator and length."""
    parts = [
        "# What the kernels do\n",
        f"Counted by the emulator at B={problem['B']}, H={problem['H']}, Dk={problem['Dk']}, Dv={problem['Dv']}: the same on a "
        "GPU. `of the least` is bytes read and written over each input once and each output once; operations are what a stage "
        "states: multiply-adds on the fp32 units count as two, so do the tensor cores'.\n",
    ]
    groups: dict[tuple, list[dict]] = {}
    for entry in found:
        groups.setdefault((entry["chapter"], entry["operator"], entry["L"]), []).append(entry)
    head = ["stage", *(name.replace("_", " ") for name in COLUMNS), "of the least", "fp32 flops", "tensor flops", "ex2"]
    for (chapter, operator, L), entries in groups.items():
        body = []
        for e in entries:
            moved = e["bytes_read"] + e["bytes_written"]
            share = f"{moved / e['least_bytes']:.2f}x" if e["least_bytes"] and moved else ""
            work = [quantity(e["work"][name]) for name in ("fma_flops", "tensor_flops", "exponentials")]
            body.append([f"`{e['stage']}`", *(quantity(e[name]) for name in COLUMNS), share, *work])
        parts += [f"## {chapter} {operator} at L = {L}\n", table(head, body)]
    return "\n".join(parts)
