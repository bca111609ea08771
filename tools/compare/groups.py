"""Timings by chapter, operator and algorithm: what tables and pictures are about."""

from dataclasses import dataclass
from math import exp, log

from .store import Timings, best_ms, is_gpu, label_of

# The operator that stands for a chapter in the README.
HEADLINES = {
    "01_linear_attention": "causal_dot_product",
    "02_chunkwise": "linear_attention",
    "03_gla": "gla",
    "04_fused_chunk": "simple_gla",
    "05_deltanet_wy": "delta_rule",
    "06_scan": "scan",
}

# The picture of the README: causal linear attention in the order in which it became fast, (chapter, operator, stage).
STAIRCASE = (
    ("01_linear_attention", "causal_dot_product", "recurrent"),
    ("01_linear_attention", "causal_dot_product", "recurrent_eigen"),
    ("01_linear_attention", "causal_dot_product", "atomic"),
    ("01_linear_attention", "causal_dot_product", "dispatch"),
    ("02_chunkwise", "linear_attention", "materialized"),
    ("02_chunkwise", "linear_attention", "tensor_core"),
    ("02_chunkwise", "linear_attention", "pipelined"),
    ("02_chunkwise", "linear_attention", "warpgroup_mma"),
    ("02_chunkwise", "linear_attention", "specialized"),
    ("02_chunkwise", "linear_attention", "queued_products"),
)
STAIRCASE_AT = 2048  # the longest at which the first loop is timed, and the last kernel far from launch times

# Variants that call a library, which ours are compared with; every sweep runs them.
YARDSTICKS = ("cub", "cufft")

# A stage that its operator's dispatch could not have chosen: it has all tokens at once.
OTHER_WORK = ("prefill",)

# Algorithms for the same operator, from whichever chapter: (name, chapter, operator, stage). The first two are the
# tables that others publish.
ALGORITHMS = {
    "Simple GLA": (
        ("chunkwise", "04_fused_chunk", "simple_gla", "two_kernels"),
        ("fused", "04_fused_chunk", "simple_gla", "fused"),
        ("scan", "06_scan", "simple_gla", "scan_fused"),
    ),
    "DeltaNet": (
        ("chunkwise", "05_deltanet_wy", "delta_rule", "dispatch"),
        ("scan", "06_scan", "delta_rule", "scan_affine"),
    ),
    "Causal dot product": (
        ("atomic", "01_linear_attention", "causal_dot_product", "atomic"),
        ("recurrent", "01_linear_attention", "causal_dot_product", "lmha"),
        ("low occupancy", "01_linear_attention", "causal_dot_product", "lmha_low_occupancy"),
    ),
    "Linear attention": (
        ("recurrent", "02_chunkwise", "linear_attention", "recurrent"),
        ("chunkwise (states in memory)", "02_chunkwise", "linear_attention", "materialized"),
        ("chunkwise (fused)", "02_chunkwise", "linear_attention", "pipelined"),
        ("chunkwise (segments at once)", "02_chunkwise", "linear_attention", "segments"),
    ),
    "GLA": (
        ("recurrent", "03_gla", "gla", "recurrent_gpu"),
        ("chunkwise in log space", "03_gla", "gla", "chunk_gpu"),
        ("two levels", "03_gla", "gla", "subchunk_tensor_core"),
        ("two levels (segments at once)", "03_gla", "gla", "segments"),
        ("one kernel", "04_fused_chunk", "gla", "one_kernel"),
    ),
    "Scan": (
        ("sequential", "06_scan", "scan", "sequential_gpu"),
        ("Blelloch", "06_scan", "scan", "blelloch_gpu"),
        ("warp shuffles", "06_scan", "scan", "warp_shuffle"),
        ("single pass", "06_scan", "scan", "single_pass"),
        ("CUB", "06_scan", "scan", "cub"),
    ),
    "Convolution": (
        ("scan", "06_scan", "convolution", "scan"),
        ("FFT", "06_scan", "convolution", "cufft"),
    ),
}


@dataclass
class Rows:
    """An operator of a chapter: its stages in order, and each one's timing by length."""

    chapter: str
    label: str
    stages: dict[str, dict[int, dict]]

    def ms(self, stage: str) -> dict[int, float]:
        """Milliseconds by length, of those lengths that were timed."""
        return {L: ms for L, timing in sorted(self.stages.get(stage, {}).items()) if (ms := best_ms(timing))}

    def on_gpu(self) -> list[str]:
        """The GPU stages, in order."""
        return [stage for stage, by_length in self.stages.items() if any(map(is_gpu, by_length.values()))]

    def last(self) -> str | None:
        """What the operator's time is: its dispatch, or the last stage on the GPU that is no library's."""
        stages = [stage for stage in self.on_gpu() if stage not in YARDSTICKS and not self.is_variant(stage)]
        return stages[-1] if stages else None

    def is_variant(self, stage: str) -> bool:
        """Whether a dispatch may choose it, and it is no step of the lesson."""
        return any(timing.get("variant", False) for timing in self.stages[stage].values())


def operators(timings: Timings) -> list[Rows]:
    """All operators of all chapters, their stages as the chapter orders them."""
    result: dict[tuple[str, str], Rows] = {}
    for timing in sorted(timings, key=lambda t: (t["chapter"], t["step"])):
        key = timing["chapter"], label_of(timing)
        rows = result.setdefault(key, Rows(*key, {}))
        rows.stages.setdefault(timing["stage"], {})[timing["L"]] = timing
    return list(result.values())


def find(timings: Timings, chapter: str, label: str) -> Rows:
    """An operator of a chapter, with no stages where there are no timings of it."""
    found = (rows for rows in operators(timings) if (rows.chapter, rows.label) == (chapter, label))
    return next(found, Rows(chapter, label, {}))


def stairs(timings: Timings) -> list[dict]:
    """The timings of STAIRCASE, of those stages that were timed."""
    found = [
        find(timings, chapter, operator).stages.get(stage, {}).get(STAIRCASE_AT) for chapter, operator, stage in STAIRCASE
    ]
    return [timing for timing in found if timing and best_ms(timing)]


def algorithms(timings: Timings, title: str) -> dict[str, dict[int, float]]:
    """Milliseconds by length of each algorithm of ALGORITHMS[title]; only those that were timed."""
    series = {
        name: find(timings, chapter, label).ms(stage) for name, chapter, label, stage in ALGORITHMS[title]
    }
    return {name: by_length for name, by_length in series.items() if by_length}


@dataclass(frozen=True)
class Crossover:
    """From this length on another algorithm is the fastest: between two measured lengths, where straight lines through
    them on logarithmic axes meet."""

    L: float
    ms: float
    before: str
    after: str


def crossovers(series: dict[str, dict[int, float]]) -> list[Crossover]:
    """Where the fastest of several algorithms changes, by length."""
    lengths = sorted(set().union(*(by_length for by_length in series.values())))
    result = []
    for L1, L2 in zip(lengths, lengths[1:]):
        timed = [name for name, by_length in series.items() if L1 in by_length and L2 in by_length]
        before = min(timed, key=lambda name: series[name][L1], default=None)
        after = min(timed, key=lambda name: series[name][L2], default=None)
        if before == after:
            continue
        # log t is linear in log L for both: the fraction of the way at which they are equal.
        gap1 = log(series[after][L1] / series[before][L1])
        gap2 = log(series[before][L2] / series[after][L2])
        way = gap1 / (gap1 + gap2) if gap1 + gap2 else 0.5
        ms = exp(log(series[before][L1]) + way * log(series[before][L2] / series[before][L1]))
        result.append(Crossover(L1 * (L2 / L1) ** way, ms, before, after))
    return result
