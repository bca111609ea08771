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


def title_of(about: dict, longest: trace.Launch) -> str:
    sizes = "  ".join(f"{name}={size}" for name, size in about.get("problem", {}).items() if isinstance(size, int) and name in "B H L Dk Dv C".split())
    return f"{about.get('stage', longest.name)}  {sizes}".rstrip()


def cost(about: dict) -> tuple[float, float, str] | None:
    """The time with and without a trace in milliseconds, and what kind of time it is."""
    for kind, words in (("graph", "in a graph"), ("cold", "with a cold cache")):
        with_trace, without = (about.get(name, {}).get(kind) for name in ("traced_ms", "untraced_ms"))
        if with_trace and without:
            return with_trace, without, words
    return None


def cost_lines(about: dict, timeline: bars.Timeline, one: Trace) -> list[str]:
    lines = []
    if (known := cost(about)) is not None:
        with_trace, without, words = known
        share = with_trace / without - 1
        lines.append(f"the trace costs {100 * share:.1f} %: {1e3 * with_trace:.1f} us {words}, {1e3 * without:.1f} us without")
        if share > MUCH:
            lines.append(f"that is more than {100 * MUCH:.0f} %: what is drawn here is a slower kernel than the one without a trace")
        starts, _ = timeline.chunk_starts()
        if one.clock_ghz and len(starts) > 1:
            span = sum(launch.end - launch.begin for launch in one.launches)
            first = min(launch.begin for launch in one.launches)
            last = max(launch.end for launch in one.launches)
            lines.append(f"from the first event to the last {(last - first) / one.clock_ghz / 1e3:.1f} us at {one.clock_ghz:.2f} GHz"
                         + (f", {span / one.clock_ghz / 1e3:.1f} us summed over the kernels" if len(one.launches) > 1 else ""))
    return lines


def notes(about: dict, one: Trace) -> list[str]:
    """Below the picture: whose clocks these are."""
    if one.is_logical:
        return [f"~ the emulator's clocks: the order is real, the times come from a table ({one.device})"]
    known = cost(about)
    spent = f", the trace costs {100 * (known[0] / known[1] - 1):.0f} %" if known else ""
    return [f"{one.device}, {about.get('date', 'no date')}, clocks of {one.clock_ghz:.2f} GHz{spent}"]


def show(drawing: Drawing) -> None:
    file = drawing.base.with_suffix(".json")
    one = trace.load(file)
    about = json.loads(file.read_text(encoding="utf-8")).get("about", {})
    timelines = {launch: bars.timelines(launch, one.is_logical) for launch in one.launches}
    longest = max(one.launches, key=lambda launch: launch.end - launch.begin)
    for launch in one.launches:
        print(summary.text(timelines[launch][0], one))
    if one.is_logical:
        print(notes(about, one)[0])
    for line in cost_lines(about, timelines[longest][0], one):
        print(line)
    if one.stuck:
        print(one.stuck)
    name = drawing.picture.stem if drawing.picture else drawing.base.name
    drawn = picture.draw(timelines[longest][0], one, name, title_of(about, longest), notes(about, one), drawing.chunks)
    svg = drawing.picture or drawing.base.with_suffix(".svg")
    picture.write(drawn, svg)
    perfetto.write(one, [each for launch in one.launches for each in timelines[launch]], drawing.base.with_suffix(".perfetto.json"))
    print(f"picture: {svg}\nfor ui.perfetto.dev: {drawing.base.with_suffix('.perfetto.json')}")
