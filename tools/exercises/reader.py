"""The reader's folder: copies of the skeletons, and what has been solved."""

import json
import os
from pathlib import Path
import tempfile

from .task import Task


class ReaderError(Exception):
    """What stands in the way in the reader's folder, in a line."""


class Reader:
    """`exercises/`, where the reader's files lie, and exercises/.state.json beside them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.state_path = folder / ".state.json"

    def path(self, task: Task) -> Path:
        return self.folder / task.copy_name

    def copy(self, task: Task) -> bool:
        """Copies the skeleton unless the reader's file is there; says whether it did."""
        path = self.path(task)
        if path.is_file():
            return False
        if path.exists() or path.is_symlink():
            raise ReaderError(f"{path.name} in {self.folder} is no file: move it away")
        if self.folder.exists() and not self.folder.is_dir():
            raise ReaderError(f"{self.folder} is no folder: move it away")
        self.folder.mkdir(exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(task.skeleton)
        return True

    def set_aside(self, task: Task) -> Path | None:
        """Renames the reader's file, so that a new skeleton can take its place; None if there is none."""
        path = self.path(task)
        if not path.exists():
            return None
        number = 1
        while (old := path.with_name(f"{path.stem}.old{number}.cu")).exists():
            number += 1
        path.rename(old)
        return old

    def state(self) -> dict:
        """{"solved": [numbers], "hints": {number: how many were shown}}; empty if the file is missing or damaged."""
        empty = {"solved": [], "hints": {}}
        try:
            state = json.loads(self.state_path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return empty
        if not isinstance(state, dict):
            return empty
        solved, hints = state.get("solved"), state.get("hints")
        return {
            "solved": [one for one in solved if isinstance(one, str)] if isinstance(solved, list) else [],
            "hints": {k: v for k, v in hints.items() if isinstance(v, int) and v >= 0} if isinstance(hints, dict) else {},
        }

    def write_state(self, state: dict) -> None:
        """All at once: a program that is stopped leaves the old one."""
        self.folder.mkdir(exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.folder)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(state, file)
            os.replace(name, self.state_path)
        except BaseException:
            os.unlink(name)
            raise

    def next_hint(self, task: Task) -> tuple[int, str]:
        """The number and the text of the hint to show now: one more each time, then the last again."""
        state = self.state()
        shown = min(state["hints"].get(task.number, 0), len(task.hints) - 1)
        state["hints"][task.number] = shown + 1
        self.write_state(state)
        return shown + 1, task.hints[shown]

    def mark(self, task: Task, is_solved: bool) -> None:
        """Remembers how the last check ended."""
        state = self.state()
        if (task.number in state["solved"]) == is_solved:
            return
        solved = [one for one in state["solved"] if one != task.number]
        state["solved"] = [*solved, task.number] if is_solved else solved
        self.write_state(state)
