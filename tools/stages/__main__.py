"""The command line of `./tutorial diff`."""

import argparse
from pathlib import Path
import signal
import sys

from console import run as run_command, say

from . import difference, goals, includes, page, reading, rules, show, source, stage
from .reading import Step
from .stage import Mistake, Stage

ROOT = Path(__file__).resolve().parents[2]


class UsageError(Exception):
    """What the user has to change, in a line."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise UsageError(f"{message} (see ./tutorial diff --help)")


def parser() -> argparse.ArgumentParser:
    p = Parser(
        prog="./tutorial diff",
        description="Shows what a stage changes in the stage that it grows out of, as a unified diff, and which other "
        "files are read for the first time at this stage. Without a stage: a table of the stages, with the lines of "
        "code that each removes and adds and the lines of these files. Comments, blank lines, #include lines and "
        "changes of white space alone do not count.",
        epilog="Exit status: 0 all is well, 1 --check has found a mistake, 2 bad usage.",
        allow_abbrev=False,
    )
    p.add_argument("chapter", nargs="?", metavar="CHAPTER", help="1, 01_linear_attention or linear_attention")
    p.add_argument("stage", nargs="?", metavar="STAGE", help="its name as --list prints it, or OPERATOR/STAGE")
    p.add_argument("--no-comments", action="store_true", help="leave out comments, blank lines and #include lines")
    p.add_argument("--whole", action="store_true", help="also print the files that are read for the first time")
    p.add_argument("--write", action="store_true", help=f"write the table into {page.PATH}")
    p.add_argument(
        "--check", action="store_true", help="check what CI checks of the stages, that table and the headers"
    )
    return p


def chosen(stages: list[Stage], name: str) -> list[Stage]:
    """Those of a chapter's stages that are called NAME or OPERATOR/NAME, at least one."""
    found = [one for one in stages if name in (one.name, one.full_name)]
    if not found:
        names = " ".join(one.full_name for one in stages)
        raise UsageError(f"{stages[0].chapter} has no stage '{name}'; its stages are: {names}")
    return found


def difference_shown(root: Path, step: Step, notes: list[str], comments: bool, colours: bool) -> str:
    """What a stage changes, below its notes."""
    one = step.stage
    if step.code is None:
        return "\n".join([f"{one.path} grows out of nothing: it is the first stage of its operator", *notes]) + "\n"
    shown = step.code
    if comments:
        shown = difference.compare(source.read(root / one.parent), source.read(root / one.path), source.lines)
    return show.difference(one.parent, one.path, notes, shown, colours)


def show_stage(root: Path, named: list[Stage], stages: dict[str, Stage], comments: bool, whole: bool) -> None:
    """Shows the first of the stages that have the name asked for, and tells which the others are."""
    one, *others = named
    if one.said != "nothing" and one.parent not in stages:
        wrong = rules.parent_mistake(root, one, stages)
        raise UsageError(str(Mistake(one.path, one.line, wrong) if wrong else one.mistakes[0]))
    colours = show.has_colours(sys.stdout)
    step = reading.step(one, stages, reading.Sources(root))
    notes = show.notes(step, [other.full_name for other in others])
    sys.stdout.write(difference_shown(root, step, notes, comments, colours))
    sys.stdout.write(show.files(step))
    if whole:
        for path in [*([] if step.code else [one.path]), *(file.path for file in step.files)]:
            text = difference.compare("", source.read(root / path), source.lines if comments else source.code)
            sys.stdout.write("\n" + show.difference("/dev/null", path, [], text, colours))


def check(root: Path) -> int:
    steps = reading.steps(root)
    found = [str(mistake) for mistake in rules.check(root, steps) + includes.check(root)]
    text = source.read(root / page.PATH)
    if page.updated(text, root, steps) != text:
        found.append(f"{page.PATH}: its table is not that of the stages any more; run ./tutorial diff --write")
    for line in found:
        print(line)
    sys.stdout.write(goals.table(steps))
    if found:
        say(f"{len(found)} mistake{'s' if len(found) > 1 else ''}")
    return 1 if found else 0


def write(root: Path) -> None:
    text = page.updated(source.read(root / page.PATH), root, reading.steps(root))
    (root / page.PATH).write_text(text, encoding="utf-8")
    say(f"{page.PATH} is written")


def run(arguments: list[str] | None, root: Path) -> int:
    options = parser().parse_intermixed_args(arguments)
    about_a_stage = [f"--{name.replace('_', '-')}" for name in ("no_comments", "whole") if getattr(options, name)]
    if options.check or options.write:
        if options.check and options.write:
            raise UsageError("--check and --write: choose one")
        if options.chapter or about_a_stage:
            raise UsageError(f"--{'check' if options.check else 'write'} is about all stages: give it nothing else")
        if options.check:
            return check(root)
        write(root)
        return 0
    if about_a_stage and not options.stage:
        raise UsageError(f"{about_a_stage[0]} needs a stage: ./tutorial diff CHAPTER STAGE {about_a_stage[0]}")
    if options.chapter is None:
        sys.stdout.write(show.table(reading.steps(root)))
        return 0
    stages = stage.find(root)
    of_chapter = [one for one in stages.values() if one.chapter == options.chapter]
    if not of_chapter:
        raise UsageError(f"there are no stages in a chapter '{options.chapter}'")
    if options.stage is None:
        sys.stdout.write(show.table([step for step in reading.steps(root) if step.stage in of_chapter]))
    else:
        show_stage(root, chosen(of_chapter, options.stage), stages, not options.no_comments, options.whole)
    return 0


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    try:
        return run(arguments, root)
    except (UsageError, page.PageError) as error:
        say(str(error))
        return 2
    except OSError as error:
        if error.filename is None:  # standard output
            raise
        say(f"{error.filename}: {error.strerror}")
        return 2


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # when what reads the diff ends before it
    sys.exit(run_command(main))
