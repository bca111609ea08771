"""The command line of `./tutorial trace`, once the trace has been written down."""

import argparse
from pathlib import Path
import signal
import sys

import console

from . import bars, perfetto, picture, summary, trace


class UsageError(Exception):
    """What the user has to change, in a line."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise UsageError(f"{message} (see ./tutorial trace --help)")


def parser() -> argparse.ArgumentParser:
    p = Parser(prog="timeline", description="Draws a trace: FILE.svg, FILE.perfetto.json, and a summary.", allow_abbrev=False)
    p.add_argument("file", type=Path, help="the trace")
    p.add_argument("--title", default="", help="of the picture")
    p.add_argument("--note", action="append", default=[], help="a line below the picture")
    p.add_argument("--chunks", type=int, default=2, help="chunks of the steady state in the picture")
    return p


def show(options: argparse.Namespace) -> int:
    one = trace.load(options.file)
    timelines = {launch: bars.timelines(launch, one.is_logical) for launch in one.launches}
    longest = max(one.launches, key=lambda launch: launch.end - launch.begin)
    base = options.file.with_suffix("")
    notes = list(options.note)
    if one.is_logical:
        notes.append(f"~ the emulator's clocks: the order is real, the times come from a table ({one.device})")
    for launch in one.launches:
        print(summary.text(timelines[launch][0], one))
    if one.stuck:
        print(one.stuck)
    drawn = picture.draw(timelines[longest][0], one, base.name, options.title or longest.name, notes, options.chunks)
    picture.write(drawn, base.with_suffix(".svg"))
    perfetto.write(one, [timeline for launch in one.launches for timeline in timelines[launch]], base.with_suffix(".perfetto.json"))
    print(f"picture: {base}.svg\nfor ui.perfetto.dev: {base}.perfetto.json")
    return 0


def main() -> int:
    try:
        return show(parser().parse_args())
    except (UsageError, trace.TraceError) as error:
        console.say(str(error))
        return 2
    except OSError as error:
        console.say(f"{error.filename}: {error.strerror}")
        return 2


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # when what reads the summary ends before it
    sys.exit(console.run(main))
