"""The time of each warp, cut into what it does and what it waits for; its role; and what is under way beside it."""

from collections import defaultdict
from dataclasses import dataclass, field

from . import places
from .barriers import AT_ONCE, COPIES, Barriers
from .trace import Block, Event, Launch

# What a wait is for: a barrier, or what the warp itself has started.
AT_BARRIER = ("wait", "named_wait", "block_wait", "cluster_wait", "registers", "previous_kernel", "collective")
FOR_PRODUCTS = ("wait_products",)
FOR_COPIES = ("wait_stores", "wait_copies")
WAITS = (*AT_BARRIER, *FOR_PRODUCTS, *FOR_COPIES)
# A role is told by what its warps do, and not by what all warps of a block do.
COMMON = ("start", "end", "init", "block_wait", "cluster_wait", "cluster_arrive", "previous_kernel", "next_kernel")


@dataclass(eq=False)
class Bar:
    """A part of a warp's time, or of what it has started."""

    kind: str  # waiting, products, copies, arithmetic
    name: str
    begin: int
    end: int
    event: Event  # the wait, or what stands at its end
    is_stuck: bool = False

    @property
    def length(self) -> int:
        return self.end - self.begin


def tiles_of(copies) -> str:
    """What they bring, each once."""
    return ", ".join(dict.fromkeys(name for copy in copies if (name := places.tile(copy.place))))


@dataclass(eq=False)
class Role:
    """Warps of a block that do the same together."""

    block: Block
    warps: list[int]
    events: list[Event]  # of its first warp
    bars: list[Bar] = field(default_factory=list)
    bars_of: dict[int, list[Bar]] = field(default_factory=dict)  # of each of its warps
    products: list[Bar] = field(default_factory=list)  # under way
    registers: int = 0

    @property
    def is_idle(self) -> bool:
        return all(event.kind in (*COMMON, "registers") for event in self.events)

    @property
    def begin(self) -> int:
        return self.events[0].begin

    @property
    def end(self) -> int:
        return max(max(event.begin, event.end) for event in self.events)

    @property
    def does(self) -> str:
        """What it does, by the functions of its products, its loads or its stores."""
        names = list(dict.fromkeys(name for bar in self.products for name in bar.name.split(", ")))
        if names:
            return ", ".join(name.removeprefix("start_") for name in names)
        kinds = {event.kind for event in self.events}
        if kinds & set(COPIES):
            return "loads " + tiles_of(event for event in self.events if event.kind in COPIES)
        if self.is_idle:
            return "idle"
        work = defaultdict(int)
        for bar in self.bars:
            if bar.kind == "arithmetic":
                work[bar.name] += bar.length
        return max(work, key=work.get) if work else "waits"

    @property
    def label(self) -> str:
        first, last = self.warps[0], self.warps[-1]
        text = f"warp {first}" if first == last else f"warps {first}–{last}"
        return text if len(self.block.peers) < 2 else f"block {self.block.rank}, {text}"


def wait_name(event: Event, barriers: Barriers) -> str:
    if event.kind in FOR_PRODUCTS:
        return "products"
    if event.kind in FOR_COPIES:
        return "stores" if event.kind == "wait_stores" else "copies"
    return barriers.name(event)


def cut(events: list[Event], barriers: Barriers, last: int) -> list[Bar]:
    """The warp's time: its waits, and what lies between them. @param last when all is over, for what waits for ever"""
    bars: list[Bar] = []
    at = events[0].begin
    before = next((event for event in events if event.kind != "start"), events[0])  # whose place is that of the launch
    for event in events:
        if event.kind in WAITS:
            if event.begin > at:
                bars.append(Bar("arithmetic", places.between(before.place, event.place), at, event.begin, event))
            kind = "products" if event.kind in FOR_PRODUCTS else "copies" if event.kind in FOR_COPIES else "waiting"
            end = last if event.is_stuck else event.end
            if end > max(event.begin, at):
                bars.append(Bar(kind, wait_name(event, barriers), max(event.begin, at), end, event, event.is_stuck))
            at, before = max(at, end), event
    end = max(event.begin if event.kind in COPIES + ("store", "product") or event.is_stuck else event.end for event in events)
    if end > at:
        bars.append(Bar("arithmetic", places.between(before.place, before.place), at, end, events[-1]))
    return bars


def products_under_way(events: list[Event]) -> list[Bar]:
    """Groups of products from their start to the wait that ends them. The emulator tells when each of them runs; on a GPU
    they start after what the warp did last before the commit."""
    known = [event for event in events if event.kind == "product"]
    if known:
        return [Bar("products", places.function(event.place), event.begin, event.end, event) for event in known]
    bars, groups = [], []
    for before, event in zip([None, *events], events):
        if event.kind == "commit_products":
            groups.append((before.end if before else event.begin, event, places.products(event.place)))
        elif event.kind == "wait_products":
            done = len(groups) - event.value
            for begin, commit, name in groups[: max(done, 0)]:
                bars.append(Bar("products", name, begin, event.end, commit))
            groups = groups[max(done, 0) :]
    # Products of a warpgroup run one after the other.
    for before, after in zip(bars, bars[1:]):
        if after.begin < before.end < after.end:
            after.begin = before.end
    return bars


def find_roles(block: Block, barriers: Barriers) -> list[Role]:
    """The warps of a block: those together that stand at the same lines and wait at the same barriers; and the four that
    have products together, of which the first one may have more to do."""
    by_lines: dict[object, list[int]] = defaultdict(list)
    events = {warp: block.of_warp(warp) for warp in block.warps}
    for warp, its in events.items():
        lines = frozenset((event.kind, event.place, event.object) for event in its if event.kind not in COMMON)
        has_products = any(event.kind == "commit_products" for event in its)
        by_lines[warp // 4 if has_products else lines].append(warp)
    last = max(max(event.begin, event.end) for event in block.events)
    roles = []
    for warps in by_lines.values():
        role = Role(block, warps, events[warps[0]])
        end = last + max(400, last - role.begin)
        role.bars_of = {warp: cut(events[warp], barriers, end) for warp in warps}
        role.bars = role.bars_of[warps[0]]
        role.products = products_under_way(role.events)
        role.registers = next((event.value for event in role.events if event.kind == "registers"), 0)
        roles.append(role)
    return sorted(roles, key=lambda role: role.warps)


def copies_under_way(blocks: list[Block], barriers: Barriers) -> list[Bar]:
    """What the loads of a phase bring, from the first request to the last arrival."""
    groups: dict[tuple, list[Event]] = defaultdict(list)
    for block in blocks:
        for event in block.events:
            if event.kind in COPIES and event.target:
                groups[event.target, event.object, event.phase].append(event)
    bars = []
    for events in groups.values():
        begin = min(event.begin for event in events)
        end = max(barriers.copy_end.get(event, event.begin) for event in events)
        bars.append(Bar("copies", tiles_of(events), begin, end, events[-1]))
    for block in blocks:
        for event in block.events:
            if event.kind == "store":
                bars.append(Bar("copies", f"{places.tile(event.place)} out", event.begin, event.end, event))
    return sorted((bar for bar in bars if bar.end > bar.begin), key=lambda bar: bar.begin)


@dataclass
class Timeline:
    """One block of a launch, with the others of its cluster."""

    launch: Launch
    blocks: list[Block]
    barriers: Barriers
    roles: list[Role]
    copies: list[Bar]

    @property
    def chain(self) -> Role:
        """The role that waits least for others, of those with products, if there are some."""
        busy = [role for role in self.roles if not role.is_idle and role.bars]
        busy = [role for role in busy if role.products] or busy or self.roles
        return min(busy, key=lambda role: sum(bar.length for bar in role.bars if bar.kind == "waiting") / max(1, role.end - role.begin))

    @property
    def begin(self) -> int:
        return min(role.begin for role in self.roles)

    @property
    def end(self) -> int:
        return max(max((bar.end for bar in role.bars), default=role.end) for role in self.roles)

    def chunk_starts(self) -> tuple[list[int], places.Place | None]:
        """When the chain's role passes the line that it passes once per chunk: of those that it passes often and evenly, the
        one that it passes least."""
        times = defaultdict(list)
        for event in self.chain.events:
            if event.kind in (*WAITS, "commit_products", "arrive", "expect"):
                times[event.kind, event.place].append(event.begin)
        often = {key: starts for key, starts in times.items() if len(starts) >= 4}
        if not often:
            return [], None
        # Not a line of the prologue or of every second chunk, if another one is passed twice as often at even distances.
        key = min(often, key=lambda one: (len(often[one]) < 0.7 * most_common([len(s) for s in often.values()]), len(often[one]), often[one][0]))
        return often[key], key[1]

    @property
    def period(self) -> int:
        """From the start of a chunk to that of the next one: the median."""
        starts, _ = self.chunk_starts()
        distances = sorted(after - before for before, after in zip(starts, starts[1:]))
        return distances[len(distances) // 2] if distances else max(1, self.end - self.begin)


def most_common(numbers: list[int]) -> int:
    return max(set(numbers), key=lambda number: (numbers.count(number), number))


def timelines(launch: Launch, is_logical: bool) -> list[Timeline]:
    """One for each block, or cluster, of a launch."""
    barriers = Barriers(launch, is_logical)
    result, seen = [], set()
    for block in launch.blocks:
        if block in seen:
            continue
        blocks = [block.peers[rank] for rank in sorted(block.peers)]
        seen.update(blocks)
        roles = [role for one in blocks for role in find_roles(one, barriers)]
        result.append(Timeline(launch, blocks, barriers, roles, copies_under_way(blocks, barriers)))
    return result


__all__ = ["AT_ONCE", "Bar", "Role", "Timeline", "timelines"]
