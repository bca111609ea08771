"""Timings against somebody else's: ratios."""

from math import exp, log

from .groups import operators
from .store import Timings, best_ms, key_of
from .tables import machine_lines, table


class AgainstError(Exception):
    """Timings that have nothing in common."""


def ratio_text(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def ratios(ours: Timings, theirs: Timings) -> dict:
    """Our time over theirs, by key, of what both have timed in the same measure at the same sizes. Above 1 ours is
    slower."""
    result = {}
    for key, timing in ours.by_key.items():
        other = theirs.by_key.get(key)
        if other is None or other["runs_on"] != timing["runs_on"]:
            continue
        mine, their = best_ms(timing), best_ms(other)
        if not mine or not their or timing["sizes"] != other["sizes"]:
            continue
        if (timing["time_ms"]["graph"] is None) != (other["time_ms"]["graph"] is None):
            mine, their = timing["time_ms"]["median"], other["time_ms"]["median"]
        result[key] = mine / their
    return result


def mean(values) -> float:
    """The geometric mean."""
    values = list(values)
    return exp(sum(map(log, values)) / len(values))


def limits_lines(ours: Timings, theirs: Timings) -> str:
    """How the two machines differ in what they can do at most."""
    lines = []
    for name, limit in ours.machine["limits"].items():
        other = theirs.machine["limits"].get(name)
        if other:
            lines.append([f"`{name}`", f"{limit:.4g}", f"{other:.4g}", ratio_text(limit / other)])
    return table(["measured limit", "here", "there", "here / there"], lines) if lines else ""


def check_same(problem: dict, theirs: Timings, name: str) -> None:
    """Throws AgainstError where their timings are of another problem."""
    sizes, their_sizes = ({k: v for k, v in p.items() if k != "seed"} for p in (problem, theirs.problem))
    if sizes != their_sizes:
        raise AgainstError(f"the timings are of {sizes} and those of {name} of {their_sizes}")


def report(ours: Timings, theirs: Timings, name: str) -> str:
    """Tables of ratios as Markdown."""
    check_same(ours.problem, theirs, name)
    found = ratios(ours, theirs)
    if not found:
        raise AgainstError(f"no stage was timed here and in {name} at the same length")
    lengths = sorted({key[-1] for key in found})
    parts = [
        f"# Timings here against {name}\n",
        f"Here: {machine_lines(ours)}\n",
        f"There: {machine_lines(theirs)}\n",
        "Ratios are the time here over the time there: above 1 it is slower here.\n",
        limits_lines(ours, theirs),
    ]
    for rows in operators(ours):
        body = []
        for stage, by_length in rows.stages.items():
            here = {L: found[key] for L, timing in by_length.items() if (key := key_of(timing)) in found}
            if here:
                cells = [ratio_text(here[L]) if L in here else "" for L in lengths]
                body.append([f"`{stage}`", *cells, ratio_text(mean(here.values()))])
        if body:
            parts += [f"## {rows.chapter} {rows.label}\n", table(["stage", *map(str, lengths), "mean"], body)]
    for place in ("gpu", "cpu"):
        values = [ratio for key, ratio in found.items() if ours.by_key[key]["runs_on"] == place]
        if values:
            parts.append(
                f"{place.upper()}: {len(values)} timings, ratio {ratio_text(mean(values))} in the geometric mean, "
                f"{ratio_text(min(values))} to {ratio_text(max(values))}.\n"
            )
    return "\n".join(part for part in parts if part)
