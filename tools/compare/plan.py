"""Which processes a sweep needs, and about how long they take.

A process is a chapter at one length, its GPU stages or its CPU stages: it starts CUDA, measures the machine's limits (some
tens of milliseconds each), draws inputs and computes references once for all of them. The budget of a full sweep on an
H200 with 16 CPU threads; what grows with L is, over 32 ... 16384, twice what it is at 16384:

    GPU   6 chapters x 10 lengths, 0.7 s a start                                        42 s
          106 stages x 10 lengths, 0.05 s (50 runs; then a graph)                        53 s
          longer runs, outputs compared on the host: 0.85 s a stage at L = 16384       180 s
          inputs and references in double, 1 s an operator at L = 16384                 44 s
    CPU   6 chapters x 10 lengths, 0.7 s a start                                        42 s
          39 stages, 4 runs each; the longest takes up to 1 s, at 16384 0.4 s of it    125 s
          inputs and references as above                                                44 s

That is 9 minutes, and it took 530 s when it was last measured. A sweep that is slower leaves out what is not done after
`--minutes`, the CPU stages first.
"""

from dataclasses import dataclass, replace
from math import log

from .groups import YARDSTICKS
from .programs import Operator, Program, Stage
from .store import Timings

LENGTHS = tuple(2**n for n in range(5, 15))  # 32 ... 16384
PROBLEM = {"B": 4, "H": 8, "Dk": 128, "Dv": 128, "seed": 1}

CPU_RUNS = 3  # timed, after the one that is checked
CPU_LIMIT_S = 1.0  # a CPU stage is skipped from where on one run is expected to take longer
CPU_FIRST = 1024  # up to here it is run even if no shorter length tells how long it takes
LONGEST = 16384


@dataclass(frozen=True)
class Part:
    """Stages of one operator."""

    operator: Operator
    stages: tuple[Stage, ...]


@dataclass(frozen=True)
class Job:
    """What one process runs."""

    program: Program
    L: int
    place: str
    parts: tuple[Part, ...]  # operators of one form, or of none

    def __len__(self) -> int:
        return sum(len(part.stages) for part in self.parts)

    @property
    def label(self) -> str:
        name = f"{self.program.chapter} L={self.L} on the {self.place.upper()}"
        return name if len(self.parts) > 1 else f"{name}: {self.parts[0].operator.label}"

    def only(self, wanted) -> "Job | None":
        """The same with those stages for which wanted(operator, stage) holds; None where there are none."""
        parts = []
        for part in self.parts:
            stages = tuple(stage for stage in part.stages if wanted(part.operator, stage))
            if stages:
                parts.append(Part(part.operator, stages))
        return replace(self, parts=tuple(parts)) if parts else None

    def split(self) -> list["Job"]:
        """The same in more processes: one an operator, or if it is one operator, one a stage."""
        if len(self.parts) > 1:
            return [replace(self, parts=(part,)) for part in self.parts]
        operator, stages = self.parts[0].operator, self.parts[0].stages
        return [replace(self, parts=(Part(operator, (stage,)),)) for stage in stages]

    def seconds(self) -> float:
        """About how long it takes: the figures of the budget above."""
        share = self.L / LONGEST
        if self.place == "cpu":
            a_stage = (1 + CPU_RUNS) * 0.4 * CPU_LIMIT_S * share
        else:
            a_stage = 0.05 + 0.85 * share
        return 0.7 + a_stage * len(self) + share * len(self.parts)


def jobs(
    programs: list[Program],
    lengths,
    forms: bool = False,
    variants: bool = False,
    cpu: bool = True,
    gpu: bool = True,
    only_form: str | None = None,
) -> list[Job]:
    """All processes: GPU stages first, short sequences first. A CPU stage's time at one length tells whether the next is
    worth while. Of the variants there are always the yardsticks, and the others where `variants` asks for them. Operators
    are run as they are, with `forms` also in each of their forms, and with `only_form` in that form alone."""

    def is_chosen(form: str | None) -> bool:
        return form == only_form if only_form else forms or form is None

    def is_run(stage: Stage, place: str) -> bool:
        return stage.place == place and (variants or not stage.variant or stage.name in YARDSTICKS)

    result = []
    for place in [*(["gpu"] if gpu else []), *(["cpu"] if cpu else [])]:
        for L in sorted(lengths):
            for program in programs:
                names = dict.fromkeys(operator.form for operator in program.operators)
                for form in filter(is_chosen, names):
                    parts = tuple(Part(o, o.stages) for o in program.operators if o.form == form)
                    job = Job(program, L, place, parts).only(
                        lambda _, stage, place=place: is_run(stage, place)
                    )
                    if job:
                        result.append(job)
    return result


def expected_ms(timings: Timings, chapter: str, operator: Operator, stage: Stage, L: int) -> tuple[float, int] | None:
    """The least time of a CPU stage at length L as those at shorter lengths make one expect, and the longest of these
    lengths. None where it has not run."""
    known = sorted(
        (t["L"], t["time_ms"]["min"])  # another program on the machine may have slowed the others
        for t in timings
        if (t["chapter"], t["operator"], t["form"], t["stage"]) == (chapter, operator.name, operator.form, stage.name)
        and t["L"] < L
        and t["time_ms"] is not None
    )
    if not known:
        return None
    last_L, last_ms = known[-1]
    exponent = 2.0  # quadratic in L, unless two lengths tell more
    if len(known) > 1:
        exponent = log(last_ms / known[-2][1]) / log(last_L / known[-2][0])
        exponent = min(max(exponent, 1.0), 3.0)
    return last_ms * (L / last_L) ** exponent, last_L
