"""What a sweep says while it runs: a line that is replaced on a terminal, lines elsewhere."""

import sys
import time


def clock(seconds: float) -> str:
    """Seconds as 1:05."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class Progress:
    """Work is counted in the seconds that it was planned to take; how long it takes tells how long the rest will."""

    def __init__(self, planned_s: float, processes: int, stream=None, now=time.monotonic):
        self.left_s, self.done_s = planned_s, 0.0
        self.number, self.processes = 0, processes
        self.stream, self.now = stream or sys.stderr, now
        self.start = now()
        self.replaces = self.stream.isatty()

    def elapsed(self) -> float:
        return self.now() - self.start

    def remaining(self) -> float:
        # Before some work is done the plan counts for as much as what was seen.
        trust = 20.0
        return self.left_s * (self.elapsed() + trust) / (self.done_s + trust)

    def begin(self, label: str) -> None:
        self.number += 1
        line = f"[{self.number}/{self.processes}] {label}"
        rest = f"{clock(self.elapsed())} gone, about {clock(self.remaining())} left"
        if self.replaces:
            self.stream.write(f"\r\x1b[2K{line}  {rest}")
        else:
            self.stream.write(f"{line}  {rest}\n")
        self.stream.flush()

    def end(self, planned_s: float) -> None:
        self.done_s += planned_s
        self.left_s = max(0.0, self.left_s - planned_s)

    def say(self, text: str) -> None:
        """A line that stays."""
        self.stream.write(("\r\x1b[2K" if self.replaces else "") + text + "\n")
        self.stream.flush()

    def close(self) -> None:
        if self.replaces:
            self.stream.write("\r\x1b[2K")
            self.stream.flush()
