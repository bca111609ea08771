"""The picture: a row for each role, and what is under way beside it, in the colours of docs/pictures."""

from pathlib import Path
import sys

from . import places
from .bars import Bar, Role, Timeline
from .perfetto import in_rows
from .barriers import COPIES
from .trace import Event, Trace

sys.path.insert(0, str(places.ROOT / "docs/pictures"))
from svg import Picture  # noqa: E402  # pylint: disable=import-error,wrong-import-position

WIDTH, LEFT, RIGHT = 780, 168, 12
ROW, BAR, THIN = 46, 22, 18  # heights: of a role's row, of its bars, of what is under way
LETTER, MONO = 6.6, 7.3  # widths of one of 12 px
COLOURS = {"waiting": "b", "products": "a", "copies": "c", "arithmetic": "paper", "stuck": "d"}
LEGEND = (("products", "products, or a wait for them"), ("copies", "copies"), ("arithmetic", "other work"),
          ("waiting", "a wait for others: barrier, line"))
MOST_ROWS = 4  # of copies, or of products, under way


def shortened(words: str, width: float, letter: float = LETTER) -> str:
    """What fits; nothing if not even its beginning does."""
    fits = int((width - 6) / letter)
    if len(words) <= fits:
        return words
    return words[: fits - 1] + "…" if fits >= 5 else ""


class Panel:
    """A window of time, with its rows."""

    def __init__(self, picture: Picture, timeline: Timeline, trace: Trace, top: float, window: tuple[int, int]):
        self.picture, self.timeline, self.trace, self.top = picture, timeline, trace, top
        self.begin, self.end = window
        self.rows = shown_roles(timeline)
        self.lanes: dict[int, float] = {}  # where the copies are that an event belongs to

    def x(self, clock: float) -> float:
        return LEFT + (clock - self.begin) / (self.end - self.begin) * (WIDTH - LEFT - RIGHT)

    def y(self, role: Role) -> float:
        return self.top + 40 + ROW * self.rows.index(role)

    def axis(self, title: str) -> None:
        self.picture.text(12, self.top + 14, title, "bold")
        step = nice((self.end - self.begin) / 6)
        bottom = self.top + 34 + ROW * len(self.rows)
        first = self.timeline.begin
        clock = first - (first - self.begin) // step * step
        while clock <= self.end:
            x = self.x(clock)
            self.picture.line(x, self.top + 34, x, bottom, "faint")
            self.picture.text(x, self.top + 30, self.trace.clocks(clock - self.timeline.begin), "small middle soft")
            clock += step

    def labels(self) -> None:
        for role in self.rows:
            y = self.y(role)
            self.picture.text(12, y + 10, shortened(role.label, LEFT - 8), "small bold")
            self.picture.text(12, y + 25, shortened(role.does, LEFT - 8, MONO), "small mono")

    def bar(self, bar: Bar, y: float, height: float, words: list[str]) -> None:
        """@param words from the longest form to the shortest: the first that fits"""
        begin, end = max(bar.begin, self.begin), min(bar.end, self.end)
        width = self.x(end) - self.x(begin)
        if end <= begin or width < 0.4:
            return
        self.picture.box(self.x(begin), y, width, height, COLOURS["stuck" if bar.is_stuck else bar.kind], corner=2)
        fitting = next((text for text in words if len(text) * LETTER + 4 <= width), "") or shortened(words[-1], width)
        if fitting:
            self.picture.text(self.x(begin) + width / 2, y + height / 2 + 4, fitting, "small middle")

    def bars(self) -> None:
        for role in self.rows:
            for bar in role.bars:
                if bar.kind == "waiting":
                    words = [f"{bar.name} {bar.event.place.short}", bar.name.split("[")[0]]
                    if bar.is_stuck:
                        phase = f", phase {bar.event.phase}" if bar.event.phase >= 0 else ""
                        words = [f"waits for ever: {bar.name}{phase} {bar.event.place.short}", f"waits for ever: {bar.name}", "waits for ever"]
                else:
                    words = [bar.name]
                self.bar(bar, self.y(role), BAR, words)

    def under_way(self) -> float:
        """The lanes of products and of copies below the rows. Returns where they end."""
        y = self.top + 44 + ROW * len(self.rows)
        lanes = [("products under way", [bar for role in self.rows for bar in role.products]), ("copies under way", self.timeline.copies)]
        for title, bars in lanes:
            bars = [bar for bar in bars if bar.end > self.begin and bar.begin < self.end]
            if not bars:
                continue
            self.picture.text(12, y + 13, title, "small bold")
            for row in in_rows(bars)[:MOST_ROWS]:
                for bar in row:
                    self.lanes[id(bar)] = y
                    self.bar(bar, y, THIN - 2, [bar.name.replace("start_", ""), bar.name.replace("start_", "").split(",")[0]])
                y += THIN
            y += 8
        return y

    def arrows(self) -> None:
        """From the arrival to the end of the wait that it ends, where both roles have a row."""
        drawn = set()
        for role in self.rows:
            for bar in role.bars:
                cause = self.timeline.barriers.cause.get(bar.event)
                if cause is None or bar.kind != "waiting" or not self.begin < bar.end < self.end:
                    continue
                if self.x(bar.end) - self.x(bar.begin) < 5:
                    continue
                source = next((other for other in self.rows if cause.warp in other.warps and cause.block is other.block), None)
                then = self.timeline.barriers.time_of(cause)
                if then < self.begin:
                    continue
                if cause.kind in COPIES:
                    self.arrow_from_copy(cause, bar, role)
                    continue
                if source is None or source is role:
                    continue
                key = (id(source), id(role), round(self.x(bar.end)))
                if key in drawn:
                    continue
                drawn.add(key)
                down = self.y(source) < self.y(role)
                start = (self.x(then), self.y(source) + (BAR if down else 0))
                end = (self.x(bar.end), self.y(role) + (0 if down else BAR))
                self.picture.arrow(start, end)

    def arrow_from_copy(self, cause: Event, bar: Bar, role: Role) -> None:
        """From where a copy is under way, up to the wait that it ends."""
        for copy in self.timeline.copies:
            is_it = copy.event.object == cause.object and copy.event.phase == cause.phase and copy.event.target is cause.target
            if is_it and id(copy) in self.lanes:
                self.picture.arrow((self.x(copy.end), self.lanes[id(copy)]), (self.x(bar.end), self.y(role) + BAR), kind="faint")

    def draw(self, title: str) -> float:
        self.axis(title)
        self.labels()
        self.bars()
        end = self.under_way()
        self.arrows()
        return end


def nice(step: float) -> int:
    """1, 2 or 5 times a power of ten, at least as large."""
    power = 1
    while True:
        for one in (1, 2, 5):
            if one * power >= step:
                return one * power
        power *= 10


def shown_roles(timeline: Timeline) -> list[Role]:
    return [role for role in timeline.roles if not role.is_idle] or timeline.roles


def windows(timeline: Timeline, chunks: int) -> list[tuple[str, tuple[int, int]]]:
    """The start, and a few chunks in the steady state; of a deadlock its end."""
    begin, end = timeline.begin, timeline.end
    stuck = [bar for role in timeline.roles for bar in role.bars if bar.is_stuck]
    length = min(end - begin, max(400, int(chunks * timeline.period)))
    if stuck:
        # Up to where the last of them begins to wait, and a part of the wait.
        last = max(bar.begin for bar in stuck if bar.event.kind != "collective") if any(bar.event.kind != "collective" for bar in stuck) else max(bar.begin for bar in stuck)
        length = min(last - begin, 4 * timeline.period if timeline.chunk_starts()[0] else last - begin) or 1
        return [("where all wait", (last - length, min(end, last + max(4 * length // 5, 200))))]
    starts, _ = timeline.chunk_starts()
    if len(starts) <= chunks + 2:
        return [("from start to end", (begin, end))]
    middle = starts[min(len(starts) * 3 // 5, len(starts) - chunks - 1)]
    return [("the start", (begin, begin + length)), (f"{chunks} chunks in the steady state", (middle, middle + length))]


def kernels(picture: Picture, trace: Trace, y: float) -> float:
    """When each kernel runs. Returns where that ends."""
    begin, end = min(launch.begin for launch in trace.launches), max(launch.end for launch in trace.launches)

    def x(clock: float) -> float:
        return LEFT + (clock - begin) / max(1, end - begin) * (WIDTH - LEFT - RIGHT)

    picture.text(12, y + 14, "kernels", "bold")
    for launch in trace.launches:
        width = max(2.0, x(launch.end) - x(launch.begin))
        picture.box(x(launch.begin), y, width, THIN - 2, "paper", corner=2)
        words = f"{launch.name} {trace.clocks(launch.begin - begin)} to {trace.clocks(launch.end - begin)}"
        if width > len(words) * LETTER:
            picture.text(x(launch.begin) + width / 2, y + 12, words, "small middle")
        elif x(launch.end) + len(words) * LETTER < WIDTH - RIGHT:
            picture.text(x(launch.end) + 6, y + 12, words, "small")
        else:
            picture.text(x(launch.begin) - 6, y + 12, words, "small end")
        y += THIN
    return y + 12


def height_of(timeline: Timeline, count: int) -> int:
    return 70 + count * (60 + ROW * len(shown_roles(timeline)) + 2 * (MOST_ROWS * THIN + 10))


def draw(timeline: Timeline, trace: Trace, name: str, title: str, notes: list[str], chunks: int = 2) -> Picture:
    """The picture of one block, or cluster. @param notes below it: the card, the date"""
    shown = windows(timeline, chunks)
    words = f"A row for each role of {timeline.launch.name}: what its warps do and what they wait for."
    picture = Picture(name, WIDTH, height_of(timeline, len(shown)), title, words)
    picture.text(12, 22, title, "bold")
    y = 34.0
    if len(trace.launches) > 1:
        y = kernels(picture, trace, y)
    for heading, window in shown:
        unit = "clocks of the emulator" if trace.is_logical else "clocks"
        y = Panel(picture, timeline, trace, y, window).draw(f"{heading}, {unit}") + 10
    x = 12.0
    for kind, text in LEGEND:
        picture.box(x, y, 14, 14, COLOURS[kind], corner=2)
        picture.text(x + 19, y + 11.5, text, "small")
        x += 30 + len(text) * LETTER
    for note in notes:
        y += 18
        picture.text(12, y + 11.5, note, "small soft")
    picture.height = round(y + 24)
    return picture


def write(picture: Picture, file: Path) -> None:
    file.write_text(picture.svg(), encoding="utf-8")
