"""The file of timings: one JSON object, a line a timing, replaced as a whole after every process of a sweep.

    {"format": 1, "date", "commit", "machine": {...}, "problem": {"B", "H", "Dk", "Dv", "seed"}, "timings": [{
      "chapter", "operator", "form", "stage", "step": [i, j], "variant": true, or not there, "L", "sizes": {...}, "runs_on": "gpu" | "cpu", "dtype",
      "outcome": "timed" | "skipped" | "failed" | "crashed", "reason",
      "time_ms": {"median", "min", "max", "runs", "graph"}, "limit_ms", "bytes", "bytes_moved", "launches", "flops",
      "work", "error", "note"}]}
"""

from dataclasses import dataclass, field
import json
import math
import os
from pathlib import Path

from .programs import options_of

FORMAT = 1


class StoreError(Exception):
    """A file that holds no timings."""


Key = tuple[str, str, str | None, str, int]


def key_of(timing: dict) -> Key:
    """What a timing is of: chapter, operator, form, stage, length."""
    return timing["chapter"], timing["operator"], timing["form"], timing["stage"], timing["L"]


def label_of(timing: dict) -> str:
    """The operator as a user names it."""
    return " ".join([timing["operator"], *options_of(timing["form"])])


def is_gpu(timing: dict) -> bool:
    return timing["runs_on"] == "gpu"


def best_ms(timing: dict) -> float | None:
    """The time to compare: in a graph where there is one, else that of a call."""
    times = timing["time_ms"]
    if timing["outcome"] != "timed" or times is None:
        return None
    return times["graph"] if times["graph"] is not None else times["median"]


# Operators with an initial and a final state [B, H, Dk, Dv] in fp32, which a call in a graph leaves out.
WITH_STATES = ("linear_attention", "gla", "retention", "simple_gla", "delta_rule", "gated_delta_rule", "kda")


def limit_ms(timing: dict) -> float | None:
    """The limit of what best_ms() is the time of.

    A chapter's limit counts the states. In bf16 these operators are bound by bytes, so the states' share of them goes.
    """
    limit, sizes = timing["limit_ms"], timing["sizes"]
    in_graph = timing["time_ms"] is not None and timing["time_ms"]["graph"] is not None
    plain = timing["operator"] in WITH_STATES and timing["form"] is None and timing["dtype"] == "bf16"
    if not (limit and in_graph and plain and timing["bytes"] and "Dk" in sizes):
        return limit
    states = 2 * 4 * sizes["B"] * sizes["H"] * sizes["Dk"] * sizes["Dv"]
    return limit * (1 - states / timing["bytes"]) if states < timing["bytes"] else limit


def limit_share(timing: dict) -> float | None:
    """The share of the limit that is reached."""
    ms, limit = best_ms(timing), limit_ms(timing)
    return limit / ms if ms and limit else None


def one_line(text: str | None) -> str:
    """The first line of a reason."""
    return (text or "").strip().split("\n")[0]


def entry(chapter: str, operator, known, result: dict, stage: dict) -> dict:
    """A timing from what a chapter's JSON says of a stage; `operator` and `known` are what its list says."""
    problem, times = result["problem"], stage["time_ms"]
    if stage["skipped"] is not None:
        outcome, reason = "skipped", stage["skipped"]
    elif stage["passed"]:
        outcome, reason = "timed", None
    else:
        outcome, reason = "failed", stage.get("failure") or "a check failed"
    return {
        "chapter": chapter,
        "operator": operator.name,
        "form": operator.form,
        "stage": known.name,
        "step": list(known.step),
        "L": problem["L"],
        "sizes": {k: v for k, v in problem.items() if k != "seed" and v is not True},
        "runs_on": stage["runs_on"],
        "dtype": stage["dtype"],
        "outcome": outcome,
        "reason": reason,
        "time_ms": times if outcome == "timed" else None,
        "limit_ms": stage["limit_ms"],
        **{name: stage.get(name) for name in ("bytes", "bytes_moved", "launches", "flops", "work", "note")},
        "error": stage["reference_error"],
        **variant(known),
    }


def variant(stage) -> dict:
    """A variant says so; a stage says nothing."""
    return {"variant": True} if stage.variant else {}


def entry_without_result(chapter: str, operator, stage, L: int, outcome: str, reason: str) -> dict:
    """A timing that there is not: of a process that gave no results, or of a stage that would take too long."""
    return {
        "chapter": chapter,
        "operator": operator.name,
        "form": operator.form,
        "stage": stage.name,
        "step": list(stage.step),
        "L": L,
        "sizes": {"L": L},
        "runs_on": stage.place,
        "dtype": stage.dtype,
        "outcome": outcome,
        "reason": reason,
        "time_ms": None,
        "limit_ms": None,
        **dict.fromkeys(("bytes", "bytes_moved", "launches", "flops", "work", "note", "error")),
        **variant(stage),
    }


@dataclass
class Timings:
    """All timings of one machine, commit and problem."""

    machine: dict
    date: str
    commit: str
    problem: dict
    by_key: dict[Key, dict] = field(default_factory=dict)

    def add(self, timing: dict) -> None:
        self.by_key[key_of(timing)] = timing

    def __iter__(self):
        return iter(self.by_key.values())

    def lengths(self) -> list[int]:
        return sorted({timing["L"] for timing in self})

    def text(self) -> str:
        head = {
            "format": FORMAT,
            "date": self.date,
            "commit": self.commit,
            "machine": self.machine,
            "problem": self.problem,
        }
        lines = ",\n".join("    " + json.dumps(timing) for timing in self)
        return json.dumps(head, indent=2)[:-2] + ',\n  "timings": [\n' + lines + "\n  ]\n}\n"

    def save(self, path: Path) -> None:
        write_atomically(path, self.text())


def write_atomically(path: Path, text: str) -> None:
    """The file has its old contents or its new ones, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


OUTCOMES = ("timed", "skipped", "failed", "crashed")
NUMBER = int | float
TEXT = str | None
HEAD_TYPES = {"machine": dict, "date": str, "commit": str, "problem": dict, "timings": list}
MACHINE_TYPES = {
    **dict.fromkeys(("gpu", "driver", "cuda", "mig", "cpu"), TEXT),
    **dict.fromkeys(("power_limit_w", "cpu_threads"), NUMBER | None),
    "clocks_mhz": dict,
    "limits": dict,
}
TIMING_TYPES = {
    **dict.fromkeys(("chapter", "operator", "stage", "runs_on", "dtype", "outcome"), str),
    **dict.fromkeys(("form", "reason", "note"), TEXT),
    **dict.fromkeys(("limit_ms", "bytes", "bytes_moved", "launches", "flops", "error"), NUMBER | None),
    "step": list,
    "L": int,
    "sizes": dict,
    "time_ms": dict | None,
    "work": dict | None,
}
TIMES_TYPES = {**dict.fromkeys(("median", "min", "max", "runs"), NUMBER), "graph": NUMBER | None}


def require(entry: dict, types: dict) -> None:
    """Throws ValueError where an entry of a file lacks a member or has one of another type."""
    for name, kind in types.items():
        value = entry[name]
        if not isinstance(value, kind) or (isinstance(value, float) and not 0 <= value < math.inf):
            raise ValueError(f"{name} is {str(value)[:40]!r}")


def load(path: Path) -> Timings:
    """Reads a file of timings. Throws StoreError, in one line."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise StoreError(f"{path} is of format {data['format']}, this program reads {FORMAT}")
        require(data, HEAD_TYPES)
        require(data["machine"], MACHINE_TYPES)
        require(data["machine"]["limits"], dict.fromkeys(data["machine"]["limits"], NUMBER))
        require(data["machine"]["clocks_mhz"], dict.fromkeys(("sm", "sm_max", "memory", "memory_max"), NUMBER | None))
        require(data["problem"], dict.fromkeys(("B", "H", "Dk", "Dv"), int))
        timings = Timings(data["machine"], data["date"], data["commit"], data["problem"])
        for timing in data["timings"]:
            require(timing, TIMING_TYPES)
            require(timing["sizes"], dict.fromkeys(timing["sizes"], NUMBER))
            require(dict(enumerate(timing["step"])), {0: int, 1: int})
            if timing["time_ms"] is not None:
                require(timing["time_ms"], TIMES_TYPES)
            if timing["outcome"] not in OUTCOMES or (timing["time_ms"] is None) == (timing["outcome"] == "timed"):
                raise ValueError(f"outcome is {timing['outcome'][:40]!r}")
            timings.add(timing)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path} holds no timings of `./tutorial compare` ({error})") from error
    return timings
