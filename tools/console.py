"""What commands print for people and programs: lines on standard error, results on standard output."""

import os
import sys


def say(text: str) -> None:
    """A line on standard error. One that is full is no reason to stop."""
    try:
        print(f"tutorial: {text}", file=sys.stderr, flush=True)
    except OSError:
        pass


def run(main) -> int:
    """The status of main(); 2 and a line where what it printed could not be written."""
    if sys.stdout is None:  # it was closed
        say("standard output could not be written")
        return 2
    try:
        try:
            status = main()
        except SystemExit as end:  # of --help
            status = end.code
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python tries again when it ends
        say("standard output could not be written")
        return 2
    return status
