"""Builds the reader's file, in the emulator or for a GPU, and runs its check."""

import fcntl
import os
from pathlib import Path
import re
import subprocess
import sys

from .task import ROOT, Task

TIME_LIMIT_S = 20
# Said where the compiler names these types, which a reader has not seen.
ARRAYS = (
    "(In the emulator an array knows its size. Take elements as `tile[i]` or `tile[row][column]`, a row as\n"
    "`auto row = tile[i];` or `float* row = tile[i];`, and the first element's address as `tile.data()`.)"
)


class BuildError(Exception):
    """The compiler refuses the file; what it said."""


def display(path: Path) -> str:
    """The path as the reader would type it."""
    try:
        return str(path.resolve().relative_to(ROOT))
    except ValueError:
        return str(path.resolve())


def quoted(text: str) -> str:
    """A string of a source."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def write_program(build: Path, task: Task, file: Path) -> None:
    """The program that checks the file. What is right already is left alone: then nothing is built again."""
    main = f'int main() {{ return exercise::check_exercise("{task.number}", {quoted(display(file))}, run); }}\n'
    for name, text in (
        ("reader.cu", f'#include "exercise/checker.hpp"\n#include "{file.resolve()}"\n{main}'),
        ("check.cpp", f'#include "{task.path.with_suffix(".cpp")}"\n'),
    ):
        source = build / "exercise" / name
        if not source.is_file() or source.read_text(encoding="utf-8") != text:
            source.write_text(text, encoding="utf-8")


def errors(output: str, file: Path) -> str:
    """What the compiler says about the reader's file: its first errors, with their lines."""
    name = str(file.resolve())
    lines = output.splitlines()
    kept: list[str] = []
    for i, line in enumerate(lines):
        if re.search(r"\berror:", line) and len(kept) < 20:
            kept.append(line.replace(name, display(file)))
            for more in lines[i + 1 : i + 3]:
                if not re.match(r" +(\d+)? *\|", more):
                    break
                kept.append(more)
        elif "undefined reference" in line and len(kept) < 20:
            kept.append(line)
    if any(re.search("exercise::(Shared|Global)<", line) for line in kept):
        kept.append(ARRAYS)
    return "\n".join(kept or lines[-15:])


def compile_file(build: Path, task: Task, file: Path) -> None:
    """Builds it. Raises BuildError."""
    write_program(build, task, file)
    command = ["cmake", "--build", str(build), "--target", "exercise"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise BuildError(errors(done.stdout, file))


def check(build: Path, task: Task, file: Path) -> int:
    """Builds and runs the check, and prints what it says. 0: solved, or not for this GPU; 1: not yet."""
    with (build / "exercise/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one program for all exercises
        try:
            compile_file(build, task, file)
        except BuildError as error:
            print(f"{display(file)}\n  FAILS  compiling  the compiler says:\n{error}\nnot solved yet")
            return 1
        program = build / "exercise/exercise"
        try:
            done = subprocess.run(
                [program], capture_output=True, text=True, errors="replace", timeout=TIME_LIMIT_S, check=False, cwd=ROOT
            )
        except subprocess.TimeoutExpired:
            print(
                f"{display(file)}\n  FAILS  time       your kernel has not ended after {TIME_LIMIT_S} s: "
                "does each of its loops end, and does\n                    one that waits for another thread call __nanosleep()?\nnot solved yet"
            )
            return 1
    sys.stdout.write(done.stdout)
    if done.returncode in (0, 1):
        return done.returncode
    if done.returncode == 3:  # instructions that this GPU does not have
        return 0
    if done.returncode == 2:
        print("not solved yet")
        return 1
    # It crashed: the emulator, if it was there, has named block and thread.
    said = [line.replace(f"{ROOT}/", "") for line in done.stderr.splitlines() if line.strip()]
    said = [re.sub(r"(\.cu:\d+) in .*", r"\1", line) for line in said]  # without the names of functions
    print(f"{display(file)}\n  FAILS  crash      your kernel ends the program")
    for line in said[:6]:
        print(f"    {line}")
    print("not solved yet")
    return 1


def trace(build: Path, task: Task) -> None:
    """Runs the program once more, and draws the launch that got stuck or, if none did, the longest one."""
    from timeline import show  # pylint: disable=import-outside-toplevel  # which reads docs/pictures, too

    base = ROOT / f"results/trace/exercise_{task.number.replace('.', '_')}"
    base.parent.mkdir(parents=True, exist_ok=True)
    file = base.with_suffix(".json")
    file.unlink(missing_ok=True)
    program = build / "exercise/exercise"
    if not program.is_file():
        return
    try:
        subprocess.run(
            [program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=2 * TIME_LIMIT_S, check=False, cwd=ROOT,
            env=os.environ | {"EMULATOR_TRACE": str(file)},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pass
    if file.is_file():
        show.show(show.Drawing(base))
    else:
        print("there is no trace: no kernel was started in the emulator, or it has not ended")
