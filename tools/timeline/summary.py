"""The summary in the terminal: where the time of each role goes, and what the longest chain of a chunk consists of."""

from collections import defaultdict
from dataclasses import dataclass

from .bars import AT_ONCE, COPIES, Bar, Role, Timeline
from .trace import Event, Trace

KINDS = ("products", "copies", "arithmetic", "waiting")


@dataclass
class Shares:
    """Of a role's time, by what it does, and of its waits by barrier and line."""

    total: int
    by_kind: dict[str, int]
    by_wait: dict[tuple[str, str], int]  # name of the barrier, line
    under_way: int  # time with a product under way


def covered(bars: list[Bar]) -> int:
    """The time in which at least one of them is."""
    time, end = 0, None
    for bar in sorted(bars, key=lambda bar: bar.begin):
        begin = bar.begin if end is None else max(bar.begin, end)
        time += max(0, bar.end - begin)
        end = bar.end if end is None else max(bar.end, end)
    return time


def shares(role: Role) -> Shares:
    by_kind = dict.fromkeys(KINDS, 0)
    by_wait: dict[tuple[str, str], int] = defaultdict(int)
    for bar in role.bars:
        if bar.is_stuck:
            continue  # which has no length
        by_kind[bar.kind] += bar.length
        if bar.kind == "waiting":
            by_wait[bar.name.split("[")[0], str(bar.event.place)] += bar.length
    return Shares(sum(by_kind.values()), by_kind, dict(by_wait), covered(role.products))


def warp_of(timeline: Timeline, event: Event) -> Role | None:
    return next((role for role in timeline.roles if role.block is event.block and event.warp in role.warps), None)


def chain(timeline: Timeline, begin: int, end: int) -> dict[tuple[str, str], int]:
    """The longest chain that ends when the chain's role passes `end`: from there back to `begin`, at each wait to who ended
    it. What it consists of: (role, what it does): clocks."""
    parts: dict[tuple[str, str], int] = defaultdict(int)
    role, at = timeline.chain, end
    seen = 0
    while at > begin and seen < 100000:
        seen += 1
        # The bar of the role that this moment lies in.
        bar = next((bar for bar in reversed(role.bars) if bar.begin < at), None)
        if bar is None:
            break
        until = min(at, bar.end)
        cause = timeline.barriers.cause.get(bar.event) if bar.kind == "waiting" else None
        other = warp_of(timeline, cause) if cause else None
        if other is not None and bar.end <= at and bar.length > AT_ONCE:
            if cause.kind in COPIES:  # from its request
                then = cause.begin
                name = (other.label, f"copy to {bar.name.split('[')[0]}")
            else:
                then = timeline.barriers.time_of(cause)
                name = ("between roles", "from an arrival to the end of a wait")
            if then < at:
                parts[name] += at - max(then, begin)
                role, at = other, then
                continue
        label = "products" if bar.kind == "products" else bar.name if bar.kind == "arithmetic" else f"wait for {bar.name.split('[')[0]}"
        start = max(bar.begin, begin)
        parts[role.label, label] += max(until - start, 0) + max(at - until, 0)
        at = bar.begin
    return dict(parts)


def steady(timeline: Timeline) -> tuple[int, int, int]:
    """From where to where the chunks follow each other evenly, and how many they are: the middle half."""
    starts, _ = timeline.chunk_starts()
    if len(starts) < 4:
        return timeline.begin, timeline.end, 1
    first, last = len(starts) // 4, max(len(starts) // 4 + 1, 3 * len(starts) // 4)
    return starts[first], starts[last], last - first


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def role_lines(role: Role, trace: Trace) -> list[str]:
    share = shares(role)
    registers = f", {role.registers} registers" if role.registers else ""
    lines = [f"{role.label}{registers}: {role.does}"]
    if role.is_idle or not share.total:
        return lines if not role.is_idle else []
    parts = [f"{kind} {percent(share.by_kind[kind], share.total)}" for kind in KINDS]
    products = f"; products under way {percent(share.under_way, share.total)}" if role.products else ""
    lines.append(f"  of {trace.clocks(share.total)} clocks: {', '.join(parts)}{products}")
    for bar in role.bars:
        if bar.is_stuck:
            lines.append(f"    waits for ever for {bar.name}, phase {bar.event.phase}: {bar.event.place}")
    for (name, line), time in sorted(share.by_wait.items(), key=lambda item: -item[1]):
        if time / share.total >= 0.005:
            lines.append(f"    waits for {name:<16} {percent(time, share.total):>5}  {line}")
    return lines


def text(timeline: Timeline, trace: Trace) -> str:
    """The summary of one block, or cluster."""
    launch = timeline.launch
    grid = " x ".join(map(str, launch.grid))
    lines = [f"{launch.name}, grid {grid}, block {timeline.blocks[0].index}" + (f" and its cluster of {len(timeline.blocks)}" if len(timeline.blocks) > 1 else "")]
    for role in timeline.roles:
        lines += role_lines(role, trace)
    if all(role.is_idle for role in timeline.roles):
        lines.append("  nothing in it that a trace knows: no barriers, copies or products of warpgroups")
    starts, line = timeline.chunk_starts()
    if line is not None:
        begin, end, count = steady(timeline)
        lines.append(f"from start to start of a chunk (at {line}, {len(starts)} times): {trace.clocks(timeline.period)} clocks")
        parts = chain(timeline, begin, end)
        total = sum(parts.values())
        lines.append(f"the chain, per chunk of {trace.clocks((end - begin) / count)} clocks in the middle half:")
        for (role, name), time in sorted(parts.items(), key=lambda item: -item[1]):
            if time >= 0.01 * total:
                lines.append(f"  {trace.clocks(time / count):>6}  {role}: {name}")
    return "\n".join(lines) + "\n"
