"""The command line of `./tutorial trace`."""

import argparse
from pathlib import Path
import re
import signal
import sys

import console

from . import published, run, show
from .places import ROOT
from .trace import TraceError


class UsageError(Exception):
    """What the user has to change, in a line."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise UsageError(f"{message} (see ./tutorial trace --help)")


def positive(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,5}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from 1 on")
    return int(text)


def parser() -> argparse.ArgumentParser:
    p = Parser(
        prog="./tutorial trace",
        description="A timeline of every warp of a kernel: what it does, what it waits for, and who ends the wait. Runs one stage "
        "and writes to results/trace a picture, a file for ui.perfetto.dev and the trace itself; prints where the time of each "
        "role goes. On a GPU the times are measured; in the emulator the order is real, and times are not (~).",
        usage="./tutorial trace CHAPTER STAGE [OPTION...] [-- CHAPTER OPTIONS]",
        epilog="STAGE may be OPERATOR/STAGE. Exit status: 0 all is well, 1 a check failed or the kernel got stuck, 2 bad usage.",
        allow_abbrev=False,
    )
    p.add_argument("chapter", nargs="?", help=argparse.SUPPRESS)
    p.add_argument("stage", nargs="?", help=argparse.SUPPRESS)
    p.add_argument("--chunks", type=positive, default=2, metavar="N", help="of the steady state in the picture, 2 unless given")
    p.add_argument("--blocks", type=positive, default=8, metavar="N", help="of each kernel, from the first on, 8 unless given")
    p.add_argument("--render", metavar="FILE", type=Path, help="draw a trace that is there already; run nothing")
    p.add_argument("--publish", nargs="?", const=True, metavar="FOLDER", help="the kernels of docs/trace.md, into "
                   "docs/pictures/trace; with FOLDER those whose traces another machine has left there")
    p.add_argument("--build", type=Path, help=argparse.SUPPRESS)  # of programs that can trace
    p.add_argument("--untraced", type=Path, help=argparse.SUPPRESS)  # of a GPU's programs that cannot
    p.add_argument("--parse-only", action="store_true", help=argparse.SUPPRESS)  # prints what is to be built: in the emulator, and for a GPU
    return p


def parse(arguments: list[str]) -> argparse.Namespace:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser().parse_args(arguments[:end])
    options.chapter_options = arguments[end + 1 :]
    for name in ("--timeline", "--timeline-blocks", "--stage", "--json", "--list", "--output", "--operator"):
        if any(one.split("=")[0] == name for one in options.chapter_options):
            raise UsageError(f"{name} is not an option to give after --; the stage is named before it")
    if options.render and options.render.suffix != ".json":
        raise UsageError(f"{options.render}: the name of a trace ends with .json")
    if options.render or options.publish:
        if options.chapter or (options.render and options.publish) or options.chapter_options:
            raise UsageError(f"--{'render' if options.render else 'publish'} stands alone")
    elif not options.stage:
        raise UsageError("a chapter and a stage are needed, such as: ./tutorial trace 2 queued_products")
    return options


def start(options: argparse.Namespace) -> int:
    if options.parse_only:
        if not options.render and options.publish in (None, True):
            one = [run.Stage(options.chapter, options.stage)]
            print(*published.targets_emulated() if options.publish else run.targets(one))
            print(*run.targets(published.KERNELS if options.publish else one))
        return 0
    if options.render:
        show.show(show.Drawing(options.render.with_suffix(""), chunks=options.chunks))
        return 0
    if options.publish:
        return published.publish(options.build, options.untraced) if options.publish is True else published.draw(Path(options.publish))
    base = ROOT / "results/trace" / options.stage.replace("/", "_")
    stage = run.Stage(options.chapter, options.stage, options.chapter_options)
    status = run.write_down(stage, options.build, options.untraced, base, options.blocks)
    if status < 2:
        show.show(show.Drawing(base, chunks=options.chunks))
    return status


def main() -> int:
    try:
        return start(parse(sys.argv[1:]))
    except (UsageError, TraceError, run.RunError) as error:
        console.say(str(error))
        return 2
    except OSError as error:
        console.say(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return 2


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # when what reads the summary ends before it
    sys.exit(console.run(main))
