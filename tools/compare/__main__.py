"""The command line of `./tutorial compare`."""

import argparse
from datetime import datetime
import importlib.util
import math
from pathlib import Path
import re
import signal
import sys

from console import run as run_command, say

from . import against, counts, machine, peers, plan, readme, store, sweep, tables
from .programs import Program, ProgramError, load_all

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results" / "compare"  # git ignores it
PUBLISHED = ROOT / "docs" / "timings"

EMULATED = (
    "this is an emulator build: its times are not a GPU's, so there is no sweep. Compare instead\n"
    "  ./tutorial compare --counts    what a stage's kernels do: threads, barriers and bytes, counted, and operations\n"
    "  ./tutorial compare --cpu       the times of the CPU stages\n"
    "  ./tutorial compare --render docs/timings/h200.json    tables and pictures of published timings, where there are any"
)


class UsageError(Exception):
    """What the user has to change, in a line."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise UsageError(f"{message} (see ./tutorial compare --help)")


def minutes(text: str) -> float:
    number = float(text)
    if not 0 <= number < math.inf:
        raise ValueError
    return number


def whole(text: str) -> int:
    number = int(text)
    if not 1 <= number < 2**31:
        raise ValueError
    return number


def parser() -> argparse.ArgumentParser:
    p = Parser(
        prog="./tutorial compare",
        description="Times every stage of every chapter over the length L; shows the timings as tables and pictures.",
        epilog="An interrupted sweep goes on where it was when the command is given again. "
        "Exit status: 0 all is well, 1 a stage failed or a GPU stage is left, 2 bad usage.",
    )
    p.add_argument("chapters", nargs="*", metavar="CHAPTER", help="chapters to time: 1, 01_linear_attention, ... (all)")
    p.add_argument("--lengths", metavar="L,L", help="lengths (32,64,...,16384)")
    p.add_argument("-B", "--batch", type=whole, metavar="N", help="batch entries, B (4)")
    p.add_argument("-H", "--heads", type=whole, metavar="N", help="heads, H (8)")
    p.add_argument("--key-dim", type=whole, metavar="N", help="width of keys and queries, Dk (128)")
    p.add_argument("--value-dim", type=whole, metavar="N", help="width of values, Dv, or of what is scanned, D (128)")
    p.add_argument("--variants", action="store_true", help="also the variants that a dispatch may choose")
    p.add_argument("--forms", action="store_true", help="also what the chapters run with an option, such as --normalize")
    p.add_argument("--only-form", metavar="NAME", help="only what they run with one option, such as backward")
    p.add_argument("--minutes", type=minutes, metavar="N", help="start no process after this time (10)")
    p.add_argument("--no-cpu", action="store_true", help="leave the CPU stages out")
    p.add_argument("--cpu", action="store_true", help="the CPU stages alone: needs no GPU")
    p.add_argument("--counts", action="store_true", help="what the emulator counts of each kernel, instead of times")
    p.add_argument("--results", type=Path, metavar="FILE", help="the file of timings (results/compare/timings.json)")
    p.add_argument("--against", type=Path, metavar="FILE", help="also a table of ratios to these timings")
    p.add_argument("--render", type=Path, metavar="FILE", help="time nothing: tables and pictures of these timings")
    p.add_argument("--publish", action="store_true", help="write docs/timings and the READMEs' tables from the timings")
    p.add_argument("--commit", metavar="NAME", help="the commit, where git cannot tell it")
    p.add_argument("--parse-only", action="store_true", help=argparse.SUPPRESS)  # ./tutorial asks before it builds
    p.add_argument("--build", type=Path, help=argparse.SUPPRESS)  # set by ./tutorial
    p.add_argument("--backend", choices=("cuda", "emulator"), help=argparse.SUPPRESS)
    return p


def lengths_of(text: str | None, default) -> list[int]:
    if text is None:
        return list(default)
    try:
        return sorted({whole(part) for part in text.split(",")})
    except ValueError:
        raise UsageError(f"--lengths: '{text}' is not a list of whole numbers above 0, such as 512,2048") from None


def problem_of(options, default: dict) -> dict:
    given = {"B": options.batch, "H": options.heads, "Dk": options.key_dim, "Dv": options.value_dim}
    return {**default, **{symbol: size for symbol, size in given.items() if size is not None}}


def named(chapters: list[str], names: list[str]) -> list[str]:
    """Those of the chapters that are called 1, 01, 01_linear_attention or linear_attention; all where there are no names."""
    result = []
    for name in names:
        wanted = name.rstrip("/").rsplit("/", 1)[-1]
        for chapter in chapters:
            number, _, word = chapter.partition("_")
            if wanted in (chapter, word, number, number.lstrip("0")):
                result.append(chapter)
                break
        else:
            raise UsageError(f"there is no chapter {name!r}; the chapters are: {' '.join(chapters)}")
    return [chapter for chapter in chapters if chapter in result or not names]


def chosen(programs: list[Program], names: list[str]) -> list[Program]:
    wanted = named([program.chapter for program in programs], names)
    return [program for program in programs if program.chapter in wanted]


def chapters_of_sources() -> list[str]:
    return sorted(path.parent.name for path in ROOT.glob("[0-9][0-9]_*/CMakeLists.txt"))


def check(options) -> None:
    """Finds options that would have no effect."""
    given = {
        name
        for name, value in vars(options).items()
        if value not in (None, False, []) and name not in ("parse_only", "build", "backend")
    }
    for mode, useful in (
        ("render", {"against", "publish"}),
        ("counts", {"chapters", "lengths", "batch", "heads", "key_dim", "value_dim"}),
    ):
        if mode not in given:
            continue
        for name in sorted(given - useful - {mode}):
            other = "a chapter" if name == "chapters" else "--" + name.replace("_", "-")
            raise UsageError(f"--{mode} has no use for {other}")
    if options.cpu and options.no_cpu:
        raise UsageError("--cpu and --no-cpu: choose one")
    if options.forms and options.only_form:
        raise UsageError("--forms and --only-form: choose one")
    if options.cpu and options.publish:
        raise UsageError("--publish: with --cpu the timings are not a GPU's")
    lengths_of(options.lengths, ())


def timings_to_fill(path: Path, options, problem: dict) -> store.Timings:
    """The timings of this machine, commit and problem that there are already, or none. Others are put aside."""
    fresh = store.Timings(
        machine.describe(options.build),
        datetime.now().astimezone().isoformat(timespec="seconds"),
        options.commit or machine.commit(ROOT),
        problem,
    )
    if not path.exists():
        return fresh
    known = store.load(path)
    if machine.same(known.machine, fresh.machine) and (known.commit, known.problem) == (fresh.commit, problem):
        return known
    aside = path.with_name(f"{path.stem}-{re.sub(r'[^0-9]', '', known.date)[:14]}{path.suffix}")
    path.rename(aside)
    say(f"{shown(path)} is of another machine, commit or problem: it is now {shown(aside)}")
    return fresh


def shown(path: Path) -> str:
    """A path as the user would type it."""
    path = path.resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def render(
    timings: store.Timings, folder: Path, source: str, name: str = "README.md", compared: dict | None = None, forms: list[str] = ()
) -> Path:
    """Tables and pictures of timings into a folder."""
    page = folder / name
    drawn = []
    try:
        from . import pictures  # Matplotlib takes a second to load, and a machine for measuring may not have it

        drawn = pictures.write(timings, folder)
    except ImportError as error:
        say(f"no pictures: {error}; `--render {source}` draws them where Matplotlib is installed")
    against_peers = peers.report(compared, timings) if compared else ""
    store.write_atomically(page, tables.report(timings, source, drawn, against_peers, forms=forms))
    return page


MAIN_CARD = "h200"  # whose timings the pages have, where there are some


def published_name(timings: store.Timings) -> str:
    """h200 for an NVIDIA H200."""
    words = re.findall(r"[a-z0-9]+", (timings.machine["gpu"] or "").lower())
    return "_".join(word for word in words if word not in ("nvidia", "geforce", "tesla")) or "cpu"


def comparison(name: str) -> dict | None:
    """What tools/compare_with_fla.py found on the same GPU, if it was published."""
    path = PUBLISHED / f"{name}_fla.json"
    return peers.load(path) if path.exists() else None


def published(name: str) -> list[store.Timings]:
    """The published timings of a GPU, those of forms that were timed alone, then those of forms on other GPUs."""
    forms = sorted(PUBLISHED.glob("*_form_*.json"), key=lambda path: (not path.name.startswith(f"{name}_form_"), path.name))
    return [store.load(path) for path in [PUBLISHED / f"{name}.json", *forms] if path.exists()]


def published_forms() -> list[str]:
    """The forms whose timings have a page of their own."""
    return sorted({path.stem.partition("_form_")[2] for path in PUBLISHED.glob("*_form_*.json")})


def only_form(timings: store.Timings) -> str | None:
    """The form that all these timings are of, if they are of one."""
    forms = {timing["form"] for timing in timings}
    return forms.pop() if len(forms) == 1 else None


def publish(timings: store.Timings) -> None:
    """Timings, tables and pictures into docs/timings, and from them the tables of the READMEs."""
    if timings.machine["gpu"] is None:
        raise UsageError("--publish: these timings are not a GPU's")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--publish: the pictures need Matplotlib; `--render FILE --publish` publishes where it is installed")
    name = published_name(timings)
    if form := only_form(timings):
        path = PUBLISHED / f"{name}_form_{form}.json"
        timings.save(path)
        store.write_atomically(PUBLISHED / f"{form}.md", tables.report(timings, path.name, title=f"Timings of --{form}"))
        readme.update_chapters(ROOT, published(MAIN_CARD), comparison(MAIN_CARD))
        say(f"docs/timings/{path.name}, docs/timings/{form}.md and the tables of the READMEs are written")
        return
    if missing := [chapter for chapter in readme.HEADLINES if not readme.is_measured(timings, chapter)]:
        raise UsageError(f"--publish: the last stage of {', '.join(missing)} has no time at L = {readme.AT}")
    compared = comparison(name)
    timings.save(PUBLISHED / f"{name}.json")
    render(timings, PUBLISHED, f"{name}.json", compared=compared, forms=published_forms())
    readme.update(ROOT, timings, compared)
    readme.update_chapters(ROOT, published(name), compared)
    say(f"docs/timings/{name}.json, docs/timings/README.md, its pictures and the tables of the READMEs are written")


def show(timings: store.Timings, path: Path, options) -> None:
    """What there is to see after timings were made or read."""
    page = render(timings, path.parent if options.render is None else RESULTS, path.name, f"{path.stem}.md")
    say(f"tables and pictures are in {shown(page)}")
    if options.against:
        theirs = store.load(options.against)
        text = against.report(timings, theirs, shown(options.against))
        store.write_atomically(page.with_name(f"{path.stem}_against_{options.against.stem}.md"), text)
        print(text)
    if options.publish:
        publish(timings)


def run_counts(options) -> int:
    if options.backend == "cuda":
        raise UsageError("--counts: the emulator counts, this is a build for GPUs; add --backend emulator")
    programs = chosen(load_all(options.build), options.chapters)
    problem = problem_of(options, counts.PROBLEM)
    path = RESULTS / "counts.json"
    found, failed = counts.count(programs, lengths_of(options.lengths, counts.LENGTHS), problem, path)
    text = counts.report(found, problem)
    store.write_atomically(path.with_suffix(".md"), text)
    print(text)
    return 1 if failed else 0


def run_sweep(options) -> int:
    programs = chosen(load_all(options.build), options.chapters)
    if not programs:
        raise UsageError(f"there are no chapters in {options.build}")
    problem = problem_of(options, plan.PROBLEM)
    lengths = lengths_of(options.lengths, plan.LENGTHS)
    most_minutes = 10 if options.minutes is None else options.minutes
    path = options.results or RESULTS / "timings.json"
    timings = timings_to_fill(path, options, problem)
    known_forms = sorted({operator.form for program in programs for operator in program.operators if operator.form})
    if options.only_form not in (None, *known_forms):
        raise UsageError(f"--only-form: there is no form '{options.only_form}'; the forms are: {' '.join(known_forms)}")
    todo = plan.jobs(
        programs,
        lengths,
        options.forms,
        options.variants,
        cpu=not options.no_cpu,
        gpu=not options.cpu,
        only_form=options.only_form,
    )
    left = sweep.unknown(timings, todo)
    seconds = sum(job.seconds() for job in left)
    if known := sum(not sweep.unknown(timings, [job]) for job in todo):
        say(f"{shown(path)} has {known} of {len(todo)} processes' timings already")
    if left:
        say(f"{len(left)} processes, about {max(1, round(seconds / 60))} minutes; an interrupted sweep can be resumed")
    report = sweep.Sweep(timings, path).run(todo, most_minutes)
    for text in report.failed:
        say(f"failed: {text}")
    if report.left_gpu or report.left_cpu:
        say(
            f"{most_minutes:g} minutes are over: {report.left_gpu} processes with GPU stages and {report.left_cpu} with CPU "
            "stages are left; the same command goes on with them"
        )
    if timings.by_key:
        show(timings, path, options)
    if not any(timing["outcome"] == "timed" for timing in timings):
        say("nothing was timed")
        return 1
    return 0 if report.complete else 1


def run(options) -> int:
    check(options)
    if options.render:
        timings = store.load(options.render)
        if not options.parse_only:
            show(timings, options.render, options)
        return 0
    if options.parse_only:
        named(chapters_of_sources(), options.chapters)
    if options.against:  # a file that does not fit is found before the sweep
        against.check_same(problem_of(options, plan.PROBLEM), store.load(options.against), shown(options.against))
    if options.parse_only:
        return 0
    if options.backend == "emulator" and not (options.cpu or options.counts):
        raise UsageError(EMULATED)
    if options.build is None:
        raise UsageError("--build is missing: run this as ./tutorial compare")
    if options.counts:
        return run_counts(options)
    return run_sweep(options)


def main(arguments: list[str] | None = None) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run(parser().parse_intermixed_args(arguments))
    except KeyboardInterrupt:
        say("interrupted; the same command goes on from here")
        return 130
    except (UsageError, ProgramError, store.StoreError, against.AgainstError, readme.ReadmeError) as error:
        say(str(error))
        return 2
    except OSError as error:
        if error.filename is None:  # standard output
            raise
        say(f"{error.filename}: {error.strerror}")
        return 2


if __name__ == "__main__":
    sys.exit(run_command(main))
