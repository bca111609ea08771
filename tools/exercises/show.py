"""What `./tutorial exercise` prints beside the checker's verdict."""

from .task import Task


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


def start(task: Task, path: str) -> str:
    """The task, and where to write."""
    return f"Exercise {task.number}: {task.title}\n\n{task.statement}\n\nWrite it in {path}, then give the same command again.\n\n"


def next_after(task: Task, tasks: list[Task], solved: list[str]) -> str:
    """What to do once an exercise is solved."""
    place = tasks.index(task)
    rest = [one for one in tasks[place + 1 :] + tasks[:place] if one.number not in solved]
    if not rest:
        return "all exercises are solved\n"
    return f"our solution: ./tutorial exercise {task.number} --solution; next: {rest[0].number}, {rest[0].title}\n"
