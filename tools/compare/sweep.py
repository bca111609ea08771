"""Runs what a plan says, whatever happens to one of its processes.

What is known after a process is written before the next one starts: a sweep that was interrupted goes on from there.
The time holds whatever happens: a process is stopped when it is over, a stage that does not end at one length is not
tried at the next, and what failed in an earlier sweep comes last.
"""

from dataclasses import dataclass
from pathlib import Path

from . import machine
from .plan import CPU_FIRST, CPU_LIMIT_S, CPU_RUNS, Job, expected_ms
from .progress import Progress
from .programs import options_of, run, size_arguments
from .store import Timings, entry, entry_without_result, key_of, one_line

TIMEOUT_S = 180.0  # of a process; the longest take some tens of seconds


@dataclass
class Report:
    """How a sweep ended."""

    failed: list[str]
    left_gpu: int = 0  # processes for which there was no time
    left_cpu: int = 0

    @property
    def complete(self) -> bool:
        return not self.failed and not self.left_gpu


def name_of(job: Job, operator, stage) -> str:
    return f"{job.program.chapter} {operator.label} {stage.name} at L={job.L}"


def is_known(timings: Timings, job: Job, operator, stage) -> bool:
    """Whether an earlier run has settled it. What failed is tried again."""
    known = timings.by_key.get((*stage_of(job, operator, stage), job.L))
    return known is not None and known["outcome"] in ("timed", "skipped")


def stage_of(job: Job, operator, stage) -> tuple:
    """A stage, at whatever length: the key of its timings without the length."""
    return job.program.chapter, operator.name, operator.form, stage.name


def unknown(timings: Timings, jobs: list[Job]) -> list[Job]:
    """What of the jobs has not been run yet; stages that have failed at some length come last."""
    bad = {key_of(timing)[:-1] for timing in timings if timing["outcome"] in ("failed", "crashed")}
    left = [job.only(lambda o, s, job=job: not is_known(timings, job, o, s)) for job in jobs]
    first = [job and job.only(lambda o, s, job=job: stage_of(job, o, s) not in bad) for job in left]
    again = [job and job.only(lambda o, s, job=job: stage_of(job, o, s) in bad) for job in left]
    return [job for job in first + again if job]


class Sweep:
    """A sweep into a file of timings."""

    def __init__(self, timings: Timings, path: Path, timeout_s: float = TIMEOUT_S):
        self.timings, self.path, self.timeout_s = timings, path, timeout_s
        self.failed: list[str] = []
        self.hung: dict[tuple, int] = {}  # the length at which a stage did not end
        self.report = Report(self.failed)

    def run(self, jobs: list[Job], minutes: float, progress: Progress | None = None) -> Report:
        jobs = unknown(self.timings, jobs)
        progress = progress or Progress(sum(job.seconds() for job in jobs), len(jobs))
        self.seconds_left = lambda: 60 * minutes - progress.elapsed()
        for job in jobs:
            if self.seconds_left() < job.seconds():
                self.leave(job)
                continue
            progress.begin(job.label)
            failed_before = len(self.failed)
            if ending := self.without_hung(job):
                self.run_job(ending)
            self.timings.save(self.path)
            progress.end(job.seconds())
            for failure in self.failed[failed_before:]:
                progress.say(failure)
        progress.close()
        return self.report

    def leave(self, job: Job) -> None:
        """There is no time for a job."""
        self.report.left_gpu += job.place == "gpu"
        self.report.left_cpu += job.place == "cpu"

    def without_hung(self, job: Job) -> Job | None:
        """Takes down the stages that did not end at another length, and returns the others."""
        for part in job.parts:
            for stage in part.stages:
                if (L := self.hung.get(stage_of(job, part.operator, stage))) is not None:
                    reason = f"not tried, as it did not end at L = {L}"
                    self.timings.add(
                        entry_without_result(job.program.chapter, part.operator, stage, job.L, "crashed", reason)
                    )
        return job.only(lambda o, s: stage_of(job, o, s) not in self.hung)

    def run_job(self, job: Job) -> None:
        """Runs a job and takes down what came of it: every stage of it is in the timings then, or left for want of time."""
        if job.place == "cpu":
            job = self.without_slow(job)
            if job is None:
                return
        patience = min(self.timeout_s, self.seconds_left())
        if patience <= 0:
            self.leave(job)
            return
        outcome = run(job.program.path, self.arguments(job), patience)
        if outcome.timed_out and patience < self.timeout_s:
            self.leave(job)  # it may be slow, not wrong
        elif outcome.results is not None:
            machine.add_device(self.timings.machine, outcome.results["device"])
            self.take_down(job, outcome.results)
        elif len(job) > 1:  # which of its stages was it?
            for part in job.split():
                self.run_job(part)
        else:
            if outcome.timed_out:
                self.hung[stage_of(job, job.parts[0].operator, job.parts[0].stages[0])] = job.L
            self.take_down_nothing(job, "skipped" if outcome.refused else "crashed", outcome.reason)

    def arguments(self, job: Job) -> list[str]:
        problem = {**self.timings.problem, "L": job.L}
        operators = [part.operator for part in job.parts]
        arguments = size_arguments(operators, problem) + ["--seed", str(problem["seed"])]
        arguments += options_of(operators[0].form)
        if len(operators) == 1:
            arguments += ["--operator", operators[0].name]
        if job.place == "cpu":
            arguments += ["--cpu-only", "--warmup", "0", "--repeat", str(CPU_RUNS)]
        names = dict.fromkeys(stage.name for part in job.parts for stage in part.stages)
        return arguments + ["--stage", ",".join(names)]

    def take_down(self, job: Job, results: dict) -> None:
        wanted = {(part.operator.name, stage.name): (part.operator, stage) for part in job.parts for stage in part.stages}
        failed = []
        for result in results["results"]:
            for stage in result["stages"]:
                key = (result["operator"], stage["name"])
                # A stage's name may be that of another operator's stage, which was not asked for.
                if key not in wanted:
                    continue
                operator, known = wanted.pop(key)
                timing = entry(job.program.chapter, operator, known, result, stage)
                self.timings.add(timing)
                if timing["outcome"] == "failed":
                    failed.append((operator, known, timing["reason"]))
        for operator, stage in wanted.values():
            self.failed.append(f"{name_of(job, operator, stage)}: not among the results")
            self.timings.add(
                entry_without_result(job.program.chapter, operator, stage, job.L, "failed", "not among the results")
            )
        if failed:
            operator, stage, reason = failed[0]
            self.failed.append(f"{name_of(job, operator, stage)}: {one_line(reason)}")
        if len(failed) > 1:
            # After an error of a kernel nothing works any more in its process: the others are not to blame yet.
            again = {(operator.label, stage.name) for operator, stage, _ in failed[1:]}
            self.run_job(job.only(lambda o, s: (o.label, s.name) in again))

    def take_down_nothing(self, job: Job, outcome: str, reason: str) -> None:
        operator, stage = job.parts[0].operator, job.parts[0].stages[0]
        self.timings.add(entry_without_result(job.program.chapter, operator, stage, job.L, outcome, reason))
        if outcome == "crashed":
            self.failed.append(f"{name_of(job, operator, stage)}: {one_line(reason)}")

    def without_slow(self, job: Job) -> Job | None:
        """Takes down the CPU stages that would take too long, and returns the others."""
        slow = set()
        for part in job.parts:
            for stage in part.stages:
                reason = why_slow(expected_ms(self.timings, job.program.chapter, part.operator, stage, job.L), job.L)
                if reason:
                    slow.add((part.operator.label, stage.name))
                    self.timings.add(
                        entry_without_result(job.program.chapter, part.operator, stage, job.L, "skipped", reason)
                    )
        return job.only(lambda o, s: (o.label, s.name) not in slow)


def why_slow(expected: tuple[float, int] | None, L: int) -> str | None:
    """Why a CPU stage is not worth waiting for at length L; None where it is."""
    if expected is None:
        return None if L <= CPU_FIRST else f"no time at L <= {CPU_FIRST} tells how long it would take"
    seconds = expected[0] / 1e3
    return f"about {seconds:.1f} s a run, going by L = {expected[1]}" if seconds > CPU_LIMIT_S else None
