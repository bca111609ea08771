"""The chapters' executables: what they hold, and one run of one of them."""

from dataclasses import dataclass, field
import json
from pathlib import Path
import signal
import subprocess

# What a symbol of an operator is in the problem that all share; C, Dg and P keep the operator's own default.
SHARED = {"B": "B", "H": "H", "L": "L", "Dk": "Dk", "Dv": "Dv", "D": "Dv"}

PACKED = "lengths"  # the form of packed sequences: a sweep gives all sequences one length


@dataclass(frozen=True)
class Stage:
    name: str
    place: str  # cpu or gpu
    dtype: str
    step: tuple[int, int] = (0, 0)  # the number of its operator in the chapter, and its own there
    variant: bool = False  # dispatch may choose it, and it is no step of the lesson


def options_of(form: str | None) -> list[str]:
    """The options that run a form: a chapter's list has them with + between, as in backward+normalize."""
    return [f"--{option}" for option in form.split("+")] if form else []


@dataclass(frozen=True)
class Operator:
    name: str
    form: str | None
    summary: str
    options: dict[str, str]  # the option that sets a size, by symbol
    stages: tuple[Stage, ...]

    @property
    def label(self) -> str:
        return " ".join([self.name, *options_of(self.form)])


@dataclass(frozen=True)
class Program:
    """A chapter: its folder's name, its executable and its operators."""

    chapter: str
    path: Path
    operators: tuple[Operator, ...] = field(repr=False)


class ProgramError(Exception):
    """A chapter that cannot even be listed."""


def load(path: Path) -> Program:
    """Asks an executable what it holds."""
    try:
        listed = subprocess.run(
            [path, "--list", "--json", "-"], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        listed = json.loads(listed)
        operators = tuple(
            Operator(
                entry["operator"],
                entry["form"],
                entry["summary"],
                entry["options"],
                tuple(
                    Stage(stage["name"], stage["place"], stage["dtype"], (i, j), stage["variant"])
                    for j, stage in enumerate(entry["stages"], 1)
                ),
            )
            for i, entry in enumerate(listed["operators"], 1)
            if PACKED not in (entry["form"] or "").split("+")
        )
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        raise ProgramError(f"{path} does not list its stages ({error}); is the build up to date?") from error
    return Program(listed["chapter"], path, operators)


def load_all(build: Path) -> list[Program]:
    """The chapters of a build folder, in order."""
    paths = [folder / folder.name.split("_", 1)[1] for folder in sorted(build.glob("[0-9][0-9]_*"))]
    return [load(path) for path in paths if path.is_file()]


def size_arguments(operators, problem: dict[str, int]) -> list[str]:
    """The options that give the operators the problem's sizes. An option of no use to any of them is an error."""
    arguments = {}
    for operator in operators:
        for symbol, option in operator.options.items():
            if symbol in SHARED:
                arguments[option] = problem[SHARED[symbol]]
    return [text for option, size in arguments.items() for text in (option, str(size))]


@dataclass
class Outcome:
    """How a process ended: with results, or with the reason why there are none."""

    results: dict | None
    reason: str | None = None
    refused: bool = False  # there is too little memory
    timed_out: bool = False


def run(path: Path, arguments: list[str], timeout_s: float) -> Outcome:
    """Runs an executable to its end. On an interruption it is stopped before the exception goes on."""
    process = subprocess.Popen([path, *arguments, "--json", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return Outcome(None, f"did not end within {timeout_s:.3g} s", timed_out=True)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    status = process.returncode
    lines = errors.decode(errors="replace").strip().splitlines() or ["no message"]
    if status == 2 and not out:  # one line; a problem too large for this machine's memory is no fault
        reason = lines[-1].removeprefix(f"{path.name}: ")
        return Outcome(None, reason, refused=reason.endswith("are free"))
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return Outcome(None, f"crashed with {name}")
    try:
        return Outcome(json.loads(out))
    except ValueError:
        return Outcome(None, f"ended with status {status} and without results: {lines[-1]}")
