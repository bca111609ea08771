"""Who ends each wait: the names of barriers, the phases that a GPU does not tell, and the last arrival at each phase."""

from collections import defaultdict
from dataclasses import dataclass, field

from . import places
from .trace import Block, Event, Launch

ARRIVALS = ("arrive", "expect")
COPIES = ("load", "push")
# An instruction and its neighbours take so many clocks also where nobody has to wait.
AT_ONCE = 60
# From an arrival to the end of a wait in the same block, and in another one, at most.
HAND_OVER = (120, 600)


@dataclass
class Phase:
    """What comes together in one phase of a barrier."""

    arrivals: list[Event] = field(default_factory=list)
    copies: list[Event] = field(default_factory=list)
    waits: list[Event] = field(default_factory=list)


class Barriers:
    """Those of a launch."""

    def __init__(self, launch: Launch, is_logical: bool):
        self.is_logical = is_logical
        self.phases: dict[tuple, dict[int, Phase]] = defaultdict(lambda: defaultdict(Phase))
        self.names: dict[tuple, str] = {}
        self.copy_end: dict[Event, int] = {}  # where a copy arrives; of a GPU: by when it has arrived
        self.cause: dict[Event, Event] = {}  # of a wait: the arrival, or the copy, that ended it
        for block in launch.blocks:
            self.name_barriers(block)
        at_barriers = defaultdict(list)
        for block in launch.blocks:
            for event in block.events:
                if event.kind in (*ARRIVALS, *COPIES, "wait") and event.target:
                    at_barriers[event.target, event.object].append(event)
        self.counts = {
            (block, event.object): event.value for block in launch.blocks for event in block.events if event.kind == "init"
        }
        for key, events in at_barriers.items():
            if not is_logical:
                self.find_phases(key, events)
            for event in events:
                phase = self.phases[key][event.phase]
                (phase.waits if event.kind == "wait" else phase.copies if event.kind in COPIES else phase.arrivals).append(event)
        for block in launch.blocks:
            self.join_named(block, launch)
        self.join_clusters(launch)
        for key, phases in self.phases.items():
            for number, phase in phases.items():
                if number >= 0:
                    self.find_causes(phase)

    def name_barriers(self, block: Block) -> None:
        """full[0], full[1], ...: by the line that initialises them, in the order of their addresses."""
        by_name = defaultdict(set)
        for event in block.events:
            if event.kind == "init":
                by_name[places.barrier(event.place)].add(event.object)
        for event in block.events:
            known = any(event.object in objects for objects in by_name.values())
            if event.kind == "wait" and not known:
                by_name[places.barrier(event.place)].add(event.object)
        for name, objects in by_name.items():
            for i, one in enumerate(sorted(objects)):
                self.names[block, one] = name if len(objects) == 1 else f"{name}[{i}]"

    def name(self, event: Event) -> str:
        """Of the barrier of an event."""
        if event.kind.startswith("named"):
            return f"barrier {event.object}"
        if event.kind == "block_wait":
            return "block"
        if event.kind.startswith("cluster"):
            return "cluster"
        if event.kind == "registers":
            return "registers"
        if event.kind == "previous_kernel":
            return "previous kernel"
        if event.kind == "collective":
            return "lanes"
        return self.names.get((event.target, event.object), places.barrier(event.place))

    def find_phases(self, key: tuple, events: list[Event]) -> None:
        """A GPU's waits tell the parity of their phase, the others nothing. All arrivals since init() are there, so that they
        can be counted."""
        count = max(1, self.counts.get(key, 1))
        arrivals = sorted((event for event in events if event.kind in ARRIVALS), key=lambda event: event.begin)
        completed, come = [], 0
        for event in arrivals:
            event.phase = come // count
            come += event.value if event.kind == "arrive" and event.value else 1  # lanes
            completed += [event.begin] * (come // count - len(completed))
        expects = [event for event in arrivals if event.kind == "expect"]
        copies = sorted((event for event in events if event.kind in COPIES), key=lambda event: event.begin)
        for i, event in enumerate(copies):
            if expects and len(copies) % len(expects) == 0:  # as many in each phase
                event.phase = expects[i * len(expects) // len(copies)].phase
            else:
                before = [one.phase for one in expects if one.begin <= event.begin + 2 * AT_ONCE]
                event.phase = before[-1] if before else 0
        for event in events:
            if event.kind == "wait":
                passed = [n for n in range(len(completed)) if n % 2 == event.phase % 2 and completed[n] <= event.end]
                event.phase = passed[-1] if passed else -1

    def join_named(self, block: Block, launch: Launch) -> None:
        """The same for named barriers and __syncthreads(): so many warps come for each phase."""
        warps = -(-launch.block[0] * launch.block[1] * launch.block[2] // 32)
        kinds = {"named_arrive": "named", "named_wait": "named", "block_wait": "block"}
        at = defaultdict(list)
        for event in block.events:
            if event.kind in kinds:
                at[kinds[event.kind], event.object].append(event)
        for (kind, number), events in at.items():
            events.sort(key=lambda event: event.begin)
            come = 0
            for event in events:
                if not self.is_logical:
                    needed = event.value // 32 if kind == "named" and event.value else warps
                    event.phase = come // needed
                    come += 1
                phase = self.phases[block, kind, number][event.phase]
                phase.arrivals.append(event)
                if event.kind != "named_arrive":
                    phase.waits.append(event)

    def join_clusters(self, launch: Launch) -> None:
        for block in launch.blocks:
            times: dict[tuple, int] = defaultdict(int)
            for event in block.events:
                if event.kind not in ("cluster_arrive", "cluster_wait"):
                    continue
                if not self.is_logical:
                    event.phase = times[event.warp, event.kind]
                    times[event.warp, event.kind] += 1
                phase = self.phases[id(block.peers), "cluster"][event.phase]
                (phase.waits if event.kind == "cluster_wait" else phase.arrivals).append(event)

    def find_causes(self, phase: Phase) -> None:
        ends = [event.end for event in phase.waits if not event.is_stuck]
        waited = [event.end for event in phase.waits if not event.is_stuck and event.end - event.begin > AT_ONCE]
        for copy in phase.copies:
            if self.is_logical:
                self.copy_end[copy] = copy.end
            elif ends:  # the first wait that ended because of it, or that came too late to see it arrive
                self.copy_end[copy] = max(copy.begin, min(waited) if waited else min(e.begin for e in phase.waits))
        for wait in phase.waits:
            if wait.is_stuck or wait.end - wait.begin <= AT_ONCE:
                continue
            # By when they have come; of copies of which that is not known better, the one that was requested last.
            come = [(event.begin, event.begin, i, event) for i, event in enumerate(phase.arrivals)
                    if event is not wait and event.begin <= wait.end]
            come += [(self.copy_end[copy], copy.begin, len(come) + i, copy) for i, copy in enumerate(phase.copies)
                     if self.copy_end.get(copy, wait.end + 1) <= wait.end]
            if not come or max(come)[0] <= wait.begin:
                continue
            self.cause[wait] = max(come)[-1]
            # A GPU does not tell when a copy has come. If a warp has arrived just before the wait ended, that was the last.
            just_before = [one for one in come if one[-1].kind in ARRIVALS and wait.end - one[0] < HAND_OVER[one[-1].peer >= 0]]
            if not self.is_logical and just_before:
                self.cause[wait] = max(just_before)[-1]

    def time_of(self, cause: Event) -> int:
        """When an arrival has happened, or a copy has come."""
        return self.copy_end.get(cause, cause.begin)
