"""The command line of `./tutorial exercise`."""

import argparse
import difflib
import os
from pathlib import Path
import re
import signal
import sys

from . import build, reader, show, task

FOLDER = task.ROOT / "exercises"
LANGUAGES = ("en", "zh")


class UsageError(Exception):
    """What the user has to change, in a line."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise UsageError(f"{message} (see ./tutorial exercise --help)")


def say(text: str) -> None:
    print(f"tutorial: {text}", file=sys.stderr)


def language() -> str:
    """That of the environment, if there are tasks in it."""
    locale = next((value for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := os.environ.get(name))), "")
    return locale[:2] if re.match(r"[a-z]{2}(_|$)", locale) and locale[:2] in LANGUAGES else "en"


def parser() -> argparse.ArgumentParser:
    p = Parser(
        prog="./tutorial exercise",
        description="Exercises that check themselves, without a GPU. Without a number: all of them, and which are "
        "solved. With one: copies its file to exercises/ unless it is there, compiles it, runs it in the emulator "
        "and says what holds and what does not. Where there is a GPU, a kernel that is right runs there, too, and is "
        "timed; --backend emulator leaves that out, --backend cuda leaves the emulator out.",
        epilog="Exit status: 0 solved or shown, 1 not solved yet, 2 bad usage or something missing.",
        allow_abbrev=False,
    )
    p.add_argument("number", nargs="?", metavar="N.M", help="exercise M of chapter N, such as 2.3")
    what = p.add_mutually_exclusive_group()
    what.add_argument("--hint", action="store_true", help="show a hint, another one each time")
    what.add_argument("--solution", action="store_true", help="show our solution, as a diff from your file if it is there")
    what.add_argument("--restart", action="store_true", help="rename your file and begin with a new copy")
    what.add_argument("--check", metavar="FILE", help="check this file instead of the one in exercises/")
    p.add_argument("--trace", action="store_true", help="draw what the warps do in the emulator, also those that wait for ever")
    p.add_argument("--language", choices=LANGUAGES, default=language(), help="of tasks and hints; else that of LANG, or English")
    # ./tutorial gives the folders: the emulator's, a GPU's, or both in this order.
    p.add_argument("--build", metavar="FOLDER", action="append", default=[], help=argparse.SUPPRESS)
    p.add_argument("--parse-only", action="store_true", help=argparse.SUPPRESS)  # status 3: a build is needed
    return p


def find(number: str, tasks: list[task.Task]) -> task.Task:
    """The exercise of this number."""
    for one in tasks:
        if one.number == number:
            return one
    chapter = [one.number for one in tasks if one.number.split(".")[0] == number.split(".")[0].lstrip("0")]
    known = f"those of chapter {chapter[0][0]} are {' '.join(chapter)}" if chapter else "./tutorial exercise lists them"
    raise UsageError(f"there is no exercise '{number}'; {known}")


def show_solution(one: task.Task, mine: Path) -> None:
    """The solution, or what of it differs from the reader's file."""
    text = mine.read_text(encoding="utf-8", errors="replace") if mine.is_file() else None
    if text is None or text == one.skeleton:
        sys.stdout.write(one.solution)
        return
    lines = difflib.unified_diff(
        text.splitlines(keepends=True),
        one.solution.splitlines(keepends=True),
        build.display(mine),
        f"our solution of {one.number}",
    )
    sys.stdout.write("".join(line if line.endswith("\n") else line + "\n" for line in lines) or "yours is ours\n")


def readable(name: str) -> Path:
    """A file to check."""
    path = Path(name)
    # The name stands between quotes in a source that includes it, where nothing can be escaped.
    if '"' in str(path.resolve()) or "\n" in str(path.resolve()):
        raise UsageError(f"--check {name!r}: its name has a quote or a line break, which a compiler cannot include")
    if path.is_dir():
        raise UsageError(f"--check {name}: it is a folder, and a file is needed")
    try:
        path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"--check {name}: it is no text") from None
    except OSError as error:
        raise UsageError(f"--check {name}: {error.strerror}") from None
    return path


def run(arguments: list[str] | None) -> int:
    options = parser().parse_args(arguments)
    tasks = [task.translated(one, options.language) for one in task.find()]
    mine = reader.Reader(FOLDER)
    if options.number is None:
        for name in ("hint", "solution", "restart", "check", "trace"):
            if getattr(options, name):
                raise UsageError(f"--{name} needs the number of an exercise: ./tutorial exercise 2.3 --{name}")
        if not options.parse_only:
            sys.stdout.write(show.overview(tasks, mine.state()["solved"]))
        return 0
    one = find(options.number, tasks)
    if options.trace and (options.hint or options.solution or options.restart):
        raise UsageError("--trace is of a check, and goes with none of --hint, --solution and --restart")
    file = readable(options.check) if options.check is not None else mine.path(one)
    needs_build = not (options.hint or options.solution or options.restart)
    if options.parse_only:
        if needs_build and options.check is None and mine.copy(one):
            sys.stdout.write(show.start(one, build.display(file)))
        return 3 if needs_build else 0
    if options.hint:
        number, hint = mine.next_hint(one)
        print(f"hint {number} of {len(one.hints)}: {hint}")
    elif options.solution:
        show_solution(one, file)
    elif options.restart:
        old = mine.set_aside(one)
        mine.copy(one)
        if old:
            print(f"your file is {build.display(old)} now; {build.display(file)} is new")
        else:
            print(f"{build.display(file)} is there")
    else:
        if not options.build:
            raise UsageError("there is no build folder; call ./tutorial exercise")
        status = 0
        for folder in options.build:
            if status == 0:
                status = build.check(Path(folder), one, file)
        if options.trace:
            build.trace(Path(options.build[0]), one)
        if options.check is None:
            mine.mark(one, status == 0)
        if status == 0:
            sys.stdout.write(show.next_after(one, tasks, mine.state()["solved"]))
        else:
            print(f"a hint: ./tutorial exercise {one.number} --hint")
        return status
    return 0


def main(arguments: list[str] | None = None) -> int:
    try:
        return run(arguments)
    except (UsageError, reader.ReaderError, task.TaskError) as error:
        say(str(error))
        return 2
    except OSError as error:
        say(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return 2


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # when what reads the list ends before it
    sys.exit(main())
