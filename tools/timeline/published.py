"""The fastest kernels of chapters 02 to 05, whose timelines docs/pictures/trace has. `./tutorial trace --publish` on a GPU makes
them again."""

from pathlib import Path

from . import run, show
from .places import ROOT

SIZES = ["-B", "4", "-H", "8", "-L", "2048"]
FOLDER = ROOT / "docs/pictures/trace"

KERNELS = [
    run.Stage("02_chunkwise", "linear_attention/queued_products", SIZES),
    run.Stage("03_gla", "gla/warpgroup_walk", SIZES),
    run.Stage("04_fused_chunk", "gla/score_levels", SIZES),
    run.Stage("04_fused_chunk", "simple_gla/register_scores", SIZES),
    run.Stage("05_deltanet_wy", "delta_rule/three_blocks", SIZES),
    run.Stage("05_deltanet_wy", "gated_delta_rule/three_blocks", SIZES),
    run.Stage("05_deltanet_wy", "kda/two_products", SIZES),
]


def name_of(stage: run.Stage) -> str:
    return stage.name.replace("/", "_")


def publish(build: Path, untraced: Path | None) -> int:
    if untraced is None:
        raise run.RunError("--publish measures, and there is no GPU")
    worst = 0
    for stage in KERNELS:
        base = ROOT / "results/trace" / name_of(stage)
        status = run.write_down(stage, build, untraced, base, 8)
        if status == 0:
            print(f"== {stage.name}")
            show.show(show.Drawing(base, picture=FOLDER / f"{name_of(stage)}.svg"))
        worst = max(worst, status)
    return worst
