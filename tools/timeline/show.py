"""Draws a trace that lies in a file, and prints its summary."""

from dataclasses import dataclass
import json
from pathlib import Path

from . import bars, perfetto, picture, summary, trace
from .trace import Trace

MUCH = 0.10  # a cost from which on a trace shows another kernel


@dataclass
class Drawing:
    """What is to be drawn."""

    base: Path  # of BASE.json, BASE.svg, BASE.perfetto.json
    chunks: int = 2
    picture: Path | None = None  # in place of BASE.svg


def reported(base: Path, kind: str) -> dict:
    """What the chapter has reported of the only stage, and the card; nothing if there is no report."""
    try:
        report = json.loads(base.with_suffix(f".{kind}.json").read_text(encoding="utf-8"))
        result = report["results"][0]
        return result["stages"][0] | {"operator": result["operator"], "problem": result["problem"], "device": report["device"]}
    except (OSError, ValueError, KeyError, IndexError):
        return {}


def title_of(about: dict, longest: trace.Launch) -> str:
    if not about:
        return longest.name
    sizes = [f"{name}={size}" for name, size in about["problem"].items() if name in ("B", "H", "L", "Dk", "Dv", "C")]
    return "  ".join([f"{about['operator']}, {about['name']}", *sizes])


def cost(base: Path) -> tuple[float, float, str] | None:
    """The time with and without a trace in milliseconds, and what kind of time it is."""
    with_trace, without = (reported(base, kind).get("time_ms") or {} for kind in ("run", "untraced"))
    for kind, words in (("graph", "in a graph"), ("median", "with a cold cache")):
        if with_trace.get(kind) and without.get(kind):
            return with_trace[kind], without[kind], words
    return None


def cost_lines(base: Path, one: Trace) -> list[str]:
    known = cost(base)
    if known is None:
        return []
    with_trace, without, words = known
    share = with_trace / without - 1
    lines = [f"the trace costs {100 * share:.1f} %: {1e3 * with_trace:.1f} us {words}, {1e3 * without:.1f} us without"]
    if share > MUCH:
        lines.append(f"that is more than {100 * MUCH:.0f} %: this is the timeline of a slower kernel than the one without a trace")
    first, last = min(launch.begin for launch in one.launches), max(launch.end for launch in one.launches)
    lines.append(f"from the first event to the last, of the blocks that were traced: {(last - first) / one.clock_ghz / 1e3:.1f} us at {one.clock_ghz:.2f} GHz")
    card = reported(base, "untraced")["device"]
    if speed := card.get("copy_bandwidth_gb_s"):
        lines.append(f"{one.device}, a copy {speed / 1e3:.2f} TB/s, {one.date}")
    return lines


def notes(base: Path, one: Trace) -> list[str]:
    """Below the picture: whose clocks these are."""
    if one.is_logical:
        return [f"~ the emulator's clocks: the order is real, the times come from a table ({one.device})"]
    known = cost(base)
    spent = f"; the trace costs {100 * (known[0] / known[1] - 1):.0f} %" if known else "; what the trace costs was not measured"
    return [f"{one.device}, {one.date}; clocks of {one.clock_ghz:.2f} GHz{spent}"]


def show(drawing: Drawing) -> None:
    file = drawing.base.with_suffix(".json")
    one = trace.load(file)
    timelines = {launch: bars.timelines(launch, one.is_logical) for launch in one.launches}
    longest = max(one.launches, key=lambda launch: launch.end - launch.begin)
    for launch in one.launches:
        print(summary.text(timelines[launch][0], one))
    if one.is_logical:
        print(notes(drawing.base, one)[0])
    for line in cost_lines(drawing.base, one):
        print(line)
    if one.stuck:
        print(one.stuck)
    name = drawing.picture.stem if drawing.picture else drawing.base.name
    drawn = picture.draw(timelines[longest][0], one, name, title_of(reported(drawing.base, "run"), longest), notes(drawing.base, one), drawing.chunks)
    svg = drawing.picture or drawing.base.with_suffix(".svg")
    picture.write(drawn, svg)
    perfetto.write(one, [each for launch in one.launches for each in timelines[launch]], drawing.base.with_suffix(".perfetto.json"))
    print(f"picture: {svg}\nfor ui.perfetto.dev: {drawing.base.with_suffix('.perfetto.json')}")
