"""What `./tutorial exercise` prints beside the checker's verdict."""

import re
import unicodedata

from .task import Task

COLUMNS = 100  # of a Chinese line; an English one breaks where its file does


def overview(tasks: list[Task], solved: list[str]) -> str:
    """All exercises, chapter by chapter, those that are solved marked."""
    lines = []
    chapter = 0
    for task in tasks:
        if task.chapter != chapter:
            chapter = task.chapter
            lines.append(f"chapter {chapter:02}")
        lines.append(f"  {'solved' if task.number in solved else '      '}  {task.number}  {task.title}")
    count = sum(task.number in solved for task in tasks)
    rest = [task.number for task in tasks if task.number not in solved]
    start = f"; ./tutorial exercise {rest[0]} starts {'one' if count == 0 else 'the next'}" if rest else ""
    lines.append(f"{count} of {len(tasks)} are solved{start}")
    return "\n".join(lines) + "\n"


def width(text: str) -> int:
    """The columns that it takes: a Chinese letter has two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def fold(text: str) -> str:
    """Lines of at most COLUMNS columns. A line with Chinese letters breaks after each of them, but not before a mark."""
    lines = []
    for line in text.splitlines():
        lines.append("")
        # A word, or a Chinese letter, each with the marks behind it.
        for piece in re.findall(r"\s*(?:[\u4e00-\u9fff“（]|[^\s\u4e00-\u9fff，。：；、？！“”（）]+)[，。：；、？！”）]*|.", line):
            if lines[-1] and width(lines[-1] + piece) > COLUMNS:
                lines.append(piece.lstrip())
            else:
                lines[-1] += piece
    return "\n".join(lines)


def start(task: Task, path: str) -> str:
    """The task, and where to write."""
    statement = task.statement if task.statement.isascii() else fold(task.statement)
    return f"Exercise {task.number}: {task.title}\n\n{statement}\n\nWrite it in {path}, then give the same command again.\n\n"


def next_after(task: Task, tasks: list[Task], solved: list[str]) -> str:
    """What to do once an exercise is solved."""
    place = tasks.index(task)
    rest = [one for one in tasks[place + 1 :] + tasks[:place] if one.number not in solved]
    if not rest:
        return "all exercises are solved\n"
    return f"our solution: ./tutorial exercise {task.number} --solution; next: {rest[0].number}, {rest[0].title}\n"
