"""The timelines of docs/trace.md and of the chapters' pages. `./tutorial trace --publish` makes them again: in the emulator
those of docs/trace.md, on a GPU the fastest kernels of chapters 02 to 05."""

import os
from pathlib import Path
import subprocess
import sys

from exercises import task

from . import run, show
from .places import ROOT

FOLDER = ROOT / "docs/pictures/trace"
SIZES = ["-B", "4", "-H", "8", "-L", "2048"]

KERNELS = [
    run.Stage("02_chunkwise", "linear_attention/queued_products", SIZES),
    run.Stage("03_gla", "gla/warpgroup_walk", SIZES),
    run.Stage("04_fused_chunk", "gla/score_levels", SIZES),
    run.Stage("04_fused_chunk", "simple_gla/register_scores", SIZES),
    run.Stage("05_deltanet_wy", "delta_rule/three_blocks", SIZES),
    run.Stage("05_deltanet_wy", "gated_delta_rule/three_blocks", SIZES),
    run.Stage("05_deltanet_wy", "kda/two_products", SIZES),
    run.Stage("05_deltanet_wy", "kda/middle_anchor", [*SIZES, "--gates", "bounded"]),
]

# In the emulator all blocks are alike.
EMULATED = run.Stage("02_chunkwise", "linear_attention/queued_products", ["-B", "1", "-H", "1", "-L", "1024", "--seed", "1"])
# An exercise's solution without one of its arrivals.
DEADLOCK = ("2.8", "if (lane == 0) empty[ring.stage()].arrive();")


def name_of(stage: run.Stage) -> str:
    return stage.name.replace("/", "_")


def targets_emulated() -> list[str]:
    """What is built before, in the emulator; exercises build their own file."""
    return [*run.targets([EMULATED]), "emulator", "device", "tile", "exercise_checker"]


def draw(folder: Path) -> int:
    """Those of a GPU whose traces are in the folder."""
    found = [stage for stage in KERNELS if (folder / f"{name_of(stage)}.json").is_file()]
    if not found:
        raise run.RunError(f"{folder} has no trace of a kernel that is published, such as {name_of(KERNELS[0])}.json")
    for stage in found:
        print(f"== {stage.name}")
        show.show(show.Drawing(folder / name_of(stage), picture=FOLDER / f"{name_of(stage)}.svg"))
    return 0


def measured(build: Path, untraced: Path) -> int:
    """Those of a GPU."""
    folder = ROOT / "results/trace"
    worst = max(run.write_down(stage, build, untraced, folder / name_of(stage), 8) for stage in KERNELS)
    return max(worst, draw(folder))


def deadlock(build: Path, folder: Path) -> Path:
    """The trace of an exercise whose warps wait for ever. Returns its file, without the suffix."""
    number, arrival = DEADLOCK
    one = next(one for one in task.find() if one.number == number)
    assert arrival in one.solution
    source, base = folder / "deadlock.cu", folder / "deadlock"
    source.write_text(one.solution.replace(arrival, ""), encoding="utf-8")
    command = [sys.executable, "-P", "-B", "-m", "exercises", number, "--check", source, "--build", build, "--language", "en"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tools"), "EMULATOR_TRACE": str(base.with_suffix(".json"))}
    subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, check=False)
    return base


def emulated(build: Path, folder: Path = FOLDER) -> int:
    """Those of the emulator, which are the same each time."""
    results = ROOT / "results/trace"
    base = results / "emulated"
    if status := run.write_down(EMULATED, build, None, base, 1):
        return status
    show.show(show.Drawing(base, picture=folder / "queued_products.emulator.svg"))
    show.show(show.Drawing(deadlock(build, results), picture=folder / "deadlock.emulator.svg"))
    return 0


def publish(build: Path, untraced: Path | None) -> int:
    FOLDER.mkdir(exist_ok=True)
    return emulated(build) if untraced is None else measured(build, untraced)
