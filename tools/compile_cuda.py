#!/usr/bin/env python3
"""Compiles what only nvcc's build compiles, for all architectures, without linking: no GPU is needed, and nothing runs.

    tools/compile_cuda.py                   with a folder for CMake, build/cuda-all; --build names another
    tools/compile_cuda.py --since main      of these files, those that changed since a commit, or that include what did

All .cu files are compiled for compute capability 8.0. Those that reach common/device/architecture.cuh, and so may have
other text for another architecture, are compiled for 8.6, 8.9, 9.0a, 10.0 and 12.0 as well, as far as nvcc knows these.
The host's compiler sees what has lines for this backend alone, of .cpp files, too: the emulator's build shows it the
others. nvcc's own look at the host's code finds what that build accepts, as a call of a kernel's function. Warnings are
errors.

$CUDACXX names the nvcc; else it is the one of the PATH or of /usr/local/cuda.
"""

import argparse
from concurrent.futures import ThreadPoolExecutor
import json
import os
from pathlib import Path
import posixpath
import re
import shutil
import subprocess
import sys

ROOT = Path(__file__).resolve().parents[1]
CONDITIONS = "common/device/architecture.cuh"

# The architectures whose code is made from the text for a virtual one. The text is the same: no source asks for more than
# architecture.cuh does (tools/test/traps_test.py), which is whether it is 9.0 or later, and whether it is 90a. So the
# compiler reads it once for all of them, which is most of its time.
PLAIN = {"80": ["80"]}
CONDITIONAL = {"80": ["80", "86", "89"], "90a": ["90a"], "100": ["100", "120"]}

# What never runs needs no optimised code, no lines for a profiler, and of the host's code no more than a look.
FAST = "--Ofast-compile=max"
UNNEEDED = {" -lineinfo": "", " -Xcompiler=-Wall,": " -Xcompiler=-fsyntax-only,-Wall,"}
WITHOUT_HOST = {" -x cu -c ": " -x cu -cuda "}  # all but the host's compiler

# Marks of a file that has lines for this backend alone.
BACKEND = re.compile(r"\bTUTORIAL_(?:EMULATOR|CUDA|NCCL)\b|#include <cublas")


def find_nvcc() -> str:
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    return nvcc or sys.exit("there is no nvcc")


def output(*command: str) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def configure(nvcc: str, build: Path) -> list[dict]:
    """The build's commands, for compute capability 8.0, and the exercises' file, which the build would generate."""
    flags = "-O0"
    if FAST.partition("=")[0] in output(nvcc, "--help"):  # which names the option, not its values
        flags += " " + FAST
    subprocess.run(
        [
            "cmake", "--preset", "cuda", "-B", str(build), "-DCMAKE_CUDA_ARCHITECTURES=80", "-DCMAKE_CXX_FLAGS_RELEASE=-O0",
            f"-DCMAKE_CUDA_FLAGS_RELEASE={flags}",
            "-DTUTORIAL_WERROR=ON",
        ],
        cwd=ROOT, env=os.environ | {"CUDACXX": nvcc}, check=True,
    )  # fmt: skip
    # Not by ninja, which compiles a hundred other files before.
    exercises = [sys.executable, "-P", "-B", "-m", "exercises.variants", str(build / "exercise/test"), "--solutions"]
    subprocess.run(exercises, env=os.environ | {"PYTHONPATH": str(ROOT / "tools")}, check=True)
    return json.loads((build / "compile_commands.json").read_text())


class Includes:
    """Which files are, or reach, one of some."""

    def __init__(self, files: list[str]):
        self.reaching = {str(ROOT / file): True for file in files}

    def reach(self, file: str) -> bool:
        if file not in self.reaching:
            self.reaching[file] = False  # while its includes are looked at; headers do not include each other in rings
            names = re.findall(r'^\s*#include "([^"]+)"', Path(file).read_text(), re.MULTILINE)
            paths = [posixpath.normpath(posixpath.join(folder, n)) for n in names for folder in (ROOT, posixpath.dirname(file))]
            self.reaching[file] = any(self.reach(path) for path in paths if os.path.exists(path))
        return self.reaching[file]


def changed_since(commit: str) -> list[str]:
    """Files that differ from the commit, those not yet committed, too."""
    found = []
    for command in (["diff", "--name-only", commit, "--"], ["ls-files", "--others", "--exclude-standard"]):
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            print(f"compile_cuda.py: {' '.join(done.stderr.split())}", file=sys.stderr)
            sys.exit(2)
        found += done.stdout.splitlines()
    return found


def replaced(command: str, texts: dict[str, str]) -> str:
    for text, other in texts.items():
        assert text in command, command
        command = command.replace(text, other)
    return command


def for_architectures(command: str, virtual: dict[str, list[str]], known: str) -> str:
    """A command of the build, with the code that is asked for in place of that for 8.0."""
    options = []
    for architecture, codes in virtual.items():
        codes = [f"sm_{code}" for code in codes if f"sm_{code.rstrip('a')}\n" in known]
        if codes:
            options.append(f"--generate-code=arch=compute_{architecture},code=[{','.join(codes)}]")
    changed = replaced(command, {"--generate-code=arch=compute_80,code=[compute_80,sm_80]": " ".join(options)})
    for text, other in UNNEEDED.items():
        changed = changed.replace(text, other)
    return changed


def run(entry: tuple[str, str, str]) -> bool:
    """Compiles a file. One that does not compile fast is compiled as readers do (the kernels of chapter 01's
    dispatch/lmha.cu need too much shared memory if they are not optimised)."""
    folder, file, command = entry
    result = None
    for attempt in dict.fromkeys([command, command.replace(FAST, "")]):
        result = subprocess.run(attempt, shell=True, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if result.returncode == 0:
            return True
    print(f"{file}: does not compile\n{result.stdout}", flush=True)
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build/cuda-all", help="the folder for CMake (build/cuda-all)")
    parser.add_argument("--since", metavar="COMMIT", help="only what changed since then, and what includes it")
    options = parser.parse_args()
    wanted = Includes(changed_since(options.since)) if options.since else None
    nvcc = find_nvcc()
    known = output(nvcc, "--list-gpu-code")
    hopper = set(output(str(ROOT / "tools/check_hopper_code.sh"), "--list").split())  # which compiles these for 90a itself
    includes = Includes([CONDITIONS])
    entries, conditional = [], 0
    for command in configure(nvcc, options.build.resolve()):
        folder, file, line = command["directory"], command["file"], command["command"]
        name = os.path.relpath(file, ROOT)
        if "/test/mutants/" in file or "/test/parts/" in file:  # built only where they are asked for (exercises/who_finds.py)
            continue
        if wanted and not wanted.reach(file):
            continue
        is_special = BACKEND.search(Path(file).read_text()) is not None
        if file.endswith(".cu"):
            virtual = PLAIN
            if includes.reach(file):
                conditional += 1
                virtual = {v: codes for v, codes in CONDITIONAL.items() if not (v == "90a" and name in hopper)}
            line = for_architectures(line, virtual, known)
            entries.append((folder, name, line if is_special else replaced(line, WITHOUT_HOST)))
        elif "/test/" not in file and is_special:
            entries.append((folder, name, line))
    assert conditional or wanted
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = list(pool.map(run, entries))
    print(f"{compiled.count(True)} of {len(entries)} files compile; {conditional} have conditions on the architecture")
    return 0 if all(compiled) else 1


if __name__ == "__main__":
    sys.exit(main())
