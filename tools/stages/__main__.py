"""The command line of `./tutorial diff`."""

import argparse
from pathlib import Path
import signal
import sys

from console import run as run_command, say

from . import difference, includes, page, rules, show, source, stage
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
        description="Shows what a stage changes in the stage that it grows out of, as a unified diff of their code. "
        "Without a stage: a table of the stages, with the number of lines of code that each removes and adds. "
        "Comments, blank lines, #include lines and changes of white space alone do not count.",
        epilog="Exit status: 0 all is well, 1 --check has found a mistake, 2 bad usage.",
        allow_abbrev=False,
    )
    p.add_argument("chapter", nargs="?", metavar="CHAPTER", help="1, 01_linear_attention or linear_attention")
    p.add_argument("stage", nargs="?", metavar="STAGE", help="its name as --list prints it, or OPERATOR/STAGE")
    p.add_argument("--comments", action="store_true", help="diff the whole files, comments and #include lines too")
    p.add_argument("--write", action="store_true", help=f"write the table into {page.PATH}")
    p.add_argument(
        "--check", action="store_true", help="check what CI checks of the stages, that table and the headers"
    )
    return p


def chosen(stages: list[Stage], name: str) -> Stage:
    """The one of a chapter's stages that is called NAME or OPERATOR/NAME."""
    found = [one for one in stages if name in (one.name, one.full_name)]
    if not found:
        names = " ".join(one.full_name for one in stages)
        raise UsageError(f"{stages[0].chapter} has no stage '{name}'; its stages are: {names}")
    if len(found) > 1:
        names = " ".join(one.full_name for one in found)
        raise UsageError(f"{found[0].chapter} has several stages '{name}'; choose one of: {names}")
    return found[0]


def show_stage(root: Path, one: Stage, stages: dict[str, Stage], comments: bool) -> None:
    if one.said == "nothing":
        print(f"{one.path} grows out of nothing: it is the first stage of its operator")
        return
    if one.parent not in stages:
        wrong = rules.parent_mistake(root, one, stages)
        raise UsageError(str(Mistake(one.path, one.line, wrong) if wrong else one.mistakes[0]))
    old, new = source.read(root / one.parent), source.read(root / one.path)
    code = difference.compare(old, new)
    shown = difference.compare(old, new, comments=True) if comments else code
    sys.stdout.write(show.difference(one, code, shown, show.has_colours(sys.stdout)))


def check(root: Path) -> int:
    steps = difference.steps(root)
    found = [str(mistake) for mistake in rules.check(root, steps) + includes.check(root)]
    text = source.read(root / page.PATH)
    if page.updated(text, root, steps) != text:
        found.append(f"{page.PATH}: its table is not that of the stages any more; run ./tutorial diff --write")
    for line in found:
        print(line)
    if found:
        say(f"{len(found)} mistake{'s' if len(found) > 1 else ''}")
    return 1 if found else 0


def run(arguments: list[str] | None, root: Path) -> int:
    options = parser().parse_intermixed_args(arguments)
    if options.check or options.write:
        if options.check and options.write:
            raise UsageError("--check and --write: choose one")
        if options.chapter or options.comments:
            raise UsageError(f"--{'check' if options.check else 'write'} is about all stages: give it nothing else")
        if options.check:
            return check(root)
        path = root / page.PATH
        path.write_text(page.updated(source.read(path), root, difference.steps(root)), encoding="utf-8")
        say(f"{page.PATH} is written")
        return 0
    if options.comments and not options.stage:
        raise UsageError("--comments needs a stage: ./tutorial diff CHAPTER STAGE --comments")
    if options.chapter is None:
        sys.stdout.write(show.table(difference.steps(root)))
        return 0
    stages = stage.find(root)
    of_chapter = [one for one in stages.values() if one.chapter == options.chapter]
    if not of_chapter:
        raise UsageError(f"there are no stages in a chapter '{options.chapter}'")
    if options.stage is None:
        sys.stdout.write(show.table([step for step in difference.steps(root) if step.stage in of_chapter]))
    else:
        show_stage(root, chosen(of_chapter, options.stage), stages, options.comments)
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
