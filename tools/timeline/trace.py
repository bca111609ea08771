"""The file that a GPU or the emulator writes (common/trace/trace.hpp)."""

from dataclasses import dataclass, field
import json
from pathlib import Path

from . import places

FIELDS = ("warp", "kind", "place", "begin", "end", "object", "phase", "value", "peer")
NEVER = -1  # the end of a wait for ever


class TraceError(Exception):
    """What is wrong with a file, in a line."""


@dataclass(eq=False)
class Event:
    """What one warp did, in clocks of its launch's first block."""

    warp: int
    kind: str
    place: places.Place
    begin: int
    end: int  # NEVER: it waits for ever
    object: int
    phase: int
    value: int
    peer: int
    block: "Block" = field(repr=False, default=None)

    @property
    def is_stuck(self) -> bool:
        return self.end == NEVER

    @property
    def target(self) -> "Block | None":
        """The block that its barrier belongs to; None where that one was not written down."""
        return self.block if self.peer < 0 else self.block.peers.get(self.peer)


@dataclass(eq=False)
class Block:
    """What one block did."""

    index: tuple[int, int, int]
    launch: "Launch" = field(repr=False)
    events: list[Event] = field(default_factory=list, repr=False)
    peers: dict[int, "Block"] = field(default_factory=dict, repr=False)  # of its cluster, by rank
    rank: int = 0

    def of_warp(self, warp: int) -> list[Event]:
        return [event for event in self.events if event.warp == warp]

    @property
    def warps(self) -> list[int]:
        return sorted({event.warp for event in self.events})


@dataclass(eq=False)
class Launch:
    """A kernel that was started."""

    number: int
    place: places.Place
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    starts_early: bool
    blocks: list[Block] = field(default_factory=list, repr=False)

    @property
    def name(self) -> str:
        return places.kernel(self.place)

    @property
    def begin(self) -> int:
        return min(event.begin for block in self.blocks for event in block.events)

    @property
    def end(self) -> int:
        return max(max(event.begin, event.end) for block in self.blocks for event in block.events)


@dataclass
class Trace:
    """All of a file."""

    clock: str
    device: str
    clock_ghz: float
    stuck: str
    date: str
    launches: list[Launch]

    @property
    def is_logical(self) -> bool:
        return self.clock == "logical"

    def clocks(self, count: float) -> str:
        """A number of clocks; those of the emulator are no times."""
        return f"{'~' if self.is_logical else ''}{count:.0f}"


def rank_in_cluster(index, cluster) -> int:
    """Blocks of a cluster are counted along x first."""
    x, y, z = (i % size for i, size in zip(index, cluster))
    return (z * cluster[1] + y) * cluster[0] + x


def join_clusters(launch: Launch) -> None:
    clusters: dict[tuple, dict[int, Block]] = {}
    for block in launch.blocks:
        block.rank = rank_in_cluster(block.index, launch.cluster)
        key = tuple(i // size for i, size in zip(block.index, launch.cluster))
        block.peers = clusters.setdefault(key, {})
        block.peers[block.rank] = block


def read(data: dict) -> Trace:
    """The trace that a file holds. Raises TraceError."""
    if data.get("format") != 1 or data.get("clock") not in ("logical", "multiprocessor"):
        raise TraceError("it is no trace of this version")
    try:
        known = [places.find(file, line) for file, line in data["places"]]
        launches = [
            Launch(i, known[one["place"]], tuple(one["grid"]), tuple(one["block"]), tuple(one["cluster"]), one["starts_early"])
            for i, one in enumerate(data["launches"])
        ]
        for one in data["blocks"]:
            launch = launches[one["launch"]]
            block = Block(tuple(one["index"]), launch)
            for values in one["events"]:
                event = Event(**dict(zip(FIELDS, values, strict=True)), block=block)
                event.place = known[event.place]
                event.begin += one["shift"]
                if not event.is_stuck:
                    event.end += one["shift"]
                block.events.append(event)
            block.events.sort(key=lambda event: (event.begin, event.end))
            if block.events:
                launch.blocks.append(block)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise TraceError(f"it is no trace: {type(error).__name__} {error}") from None
    launches = [launch for launch in launches if launch.blocks]
    if not launches:
        raise TraceError("no block was written down")
    for launch in launches:
        launch.blocks.sort(key=lambda block: block.index[::-1])
        join_clusters(launch)
    return Trace(data["clock"], data["device"], data["clock_ghz"], data["stuck"], data.get("date", ""), launches)


def load(path: Path) -> Trace:
    try:
        return read(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise TraceError(f"{path}: it is no JSON") from None
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None
