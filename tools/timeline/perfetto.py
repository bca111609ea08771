"""Chrome's trace format, which ui.perfetto.dev shows: a process for each block, a thread for each warp, and further threads
for what is under way."""

import json
from pathlib import Path

from .bars import Bar, Timeline
from .trace import Trace

COPIES, PRODUCTS = 1000, 2000  # first numbers of their threads


def in_rows(bars: list[Bar]) -> list[list[Bar]]:
    """So that those of a row do not overlap."""
    rows: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda bar: bar.begin):
        row = next((row for row in rows if row[-1].end <= bar.begin), None)
        if row is None:
            rows.append([bar])
        else:
            row.append(bar)
    return rows


class Writer:
    def __init__(self, trace: Trace):
        # Microseconds. Where the length of a clock is not known, it is a nanosecond.
        self.scale = 1e-3 / (trace.clock_ghz or 1)
        self.events: list[dict] = []
        self.flows = 0

    def name(self, kind: str, process: int, thread: int | None, name: str) -> None:
        event = {"ph": "M", "name": kind, "pid": process, "args": {"name": name}}
        self.events.append(event if thread is None else event | {"tid": thread})

    def bar(self, bar: Bar, process: int, thread: int) -> None:
        self.events.append({
            "ph": "X", "cat": bar.kind, "name": f"wait: {bar.name}" if bar.kind == "waiting" else bar.name,
            "pid": process, "tid": thread, "ts": round(bar.begin * self.scale, 6), "dur": round(bar.length * self.scale, 6),
            "args": {"line": str(bar.event.place), "clocks": bar.length,
                     **({"phase": bar.event.phase} if bar.kind == "waiting" and bar.event.phase >= 0 else {}),
                     **({"waits for ever": True} if bar.is_stuck else {})},
        })

    def arrow(self, begin: tuple[int, int, int], end: tuple[int, int, int]) -> None:
        """From a process, thread and clock to another."""
        self.flows += 1
        for kind, (process, thread, clock) in (("s", begin), ("f", end)):
            self.events.append({"ph": kind, "cat": "arrival", "name": "arrival", "id": self.flows, "pid": process, "tid": thread,
                                "ts": round(clock * self.scale, 6), **({"bp": "e"} if kind == "f" else {})})

    def block(self, timeline: Timeline, processes: dict) -> None:
        for block in timeline.blocks:
            process = processes[block]
            self.name("process_name", process, None, f"{timeline.launch.name} block {','.join(map(str, block.index))}")
            for role in (role for role in timeline.roles if role.block is block):
                for warp, bars in role.bars_of.items():
                    self.name("thread_name", process, warp, f"warp {warp}: {role.does}"[:120])
                    for bar in bars:
                        self.bar(bar, process, warp)
                        cause = timeline.barriers.cause.get(bar.event)
                        if cause and bar.kind == "waiting" and cause.block in processes:
                            self.arrow((processes[cause.block], cause.warp, timeline.barriers.time_of(cause)),
                                       (process, warp, bar.end))
                for i, row in enumerate(in_rows(role.products)):
                    thread = PRODUCTS + 8 * role.warps[0] + i
                    self.name("thread_name", process, thread, f"products of {role.label}")
                    for bar in row:
                        self.bar(bar, process, thread)
            for i, row in enumerate(in_rows([bar for bar in timeline.copies if bar.event.block is block])):
                self.name("thread_name", process, COPIES + i, f"copies {i}")
                for bar in row:
                    self.bar(bar, process, COPIES + i)


def document(trace: Trace, timelines: list[Timeline]) -> dict:
    writer = Writer(trace)
    blocks = [block for timeline in timelines for block in timeline.blocks]
    processes = {block: i for i, block in enumerate(blocks)}
    for timeline in timelines:
        writer.block(timeline, processes)
    return {"traceEvents": writer.events, "displayTimeUnit": "ns", "otherData": {"clock": trace.clock, "device": trace.device}}


def write(trace: Trace, timelines: list[Timeline], file: Path) -> None:
    file.write_text(json.dumps(document(trace, timelines), indent=None), encoding="utf-8")
