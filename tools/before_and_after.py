#!/usr/bin/env python3
"""Times what two builds give a user, on one GPU, in turn: tools/before_and_after.py BEFORE AFTER [--rounds N] [--only TEXT]

BEFORE and AFTER are build folders of two states of this repository (build/cuda). Every problem runs in both, one after the
other, N times; of each build the least graph time counts (a call among many in a CUDA graph, see the README's `graph`),
because whatever else the machine does only adds to a time. A row is marked where AFTER is slower by more than 2 %.
The status is 1 where a row is marked or a run fails, 2 for bad usage.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

LIMIT = 1.02  # noise of repeated runs on one machine

SHAPES = [  # B, H, L at Dk = Dv = 128
    (4, 8, 512), (4, 8, 1024), (4, 8, 2048), (4, 8, 16384), (1, 64, 16384), (2, 64, 8192), (4, 64, 4096), (8, 32, 2048),
    (1, 8, 16384), (1, 1, 65536),
]  # fmt: skip
OPERATORS = [  # executable, its options
    ("02_chunkwise/chunkwise", ["--operator", "linear_attention", "--stage", "dispatch"]),
    ("02_chunkwise/chunkwise", ["--operator", "linear_attention", "--stage", "dispatch", "--normalize"]),
    ("03_gla/gla", ["--operator", "gla", "--stage", "dispatch"]),
    ("04_fused_chunk/fused_chunk", ["--operator", "simple_gla", "--stage", "dispatch"]),
    ("04_fused_chunk/fused_chunk", ["--operator", "gla", "--stage", "dispatch"]),
    ("05_deltanet_wy/deltanet_wy", ["--operator", "delta_rule", "--stage", "dispatch"]),
    ("05_deltanet_wy/deltanet_wy", ["--operator", "gated_delta_rule", "--stage", "dispatch"]),
    ("05_deltanet_wy/deltanet_wy", ["--operator", "kda", "--stage", "dispatch"]),
]
GRADIENT_SHAPES = [(4, 8, 128), (4, 8, 2048), (4, 8, 16384), (1, 8, 16384)]
GRADIENTS = [
    ("02_chunkwise/chunkwise", "linear_attention"), ("03_gla/gla", "gla"), ("04_fused_chunk/fused_chunk", "simple_gla"),
    ("05_deltanet_wy/deltanet_wy", "delta_rule"), ("05_deltanet_wy/deltanet_wy", "gated_delta_rule"),
    ("05_deltanet_wy/deltanet_wy", "kda"),
]  # fmt: skip
OTHERS = [
    ("01_linear_attention/linear_attention", "--operator causal_dot_product --stage dispatch -B 4 -H 8 -L 2048 --key-dim 64 --value-dim 64"),
    ("01_linear_attention/linear_attention", "--operator causal_dot_product --stage dispatch -B 8 -H 8 -L 2048 --key-dim 128 --value-dim 128"),
    ("01_linear_attention/linear_attention", "--operator causal_dot_product --stage dispatch -B 1 -H 1 -L 2048 --key-dim 64 --value-dim 64"),
    ("01_linear_attention/linear_attention", "--operator causal_dot_product --stage dispatch --backward -B 4 -H 8 -L 2048 --key-dim 64 --value-dim 64"),
    ("01_linear_attention/linear_attention", "--operator causal_dot_product --stage dispatch --backward -B 8 -H 8 -L 2048 --key-dim 128 --value-dim 128"),
    ("03_gla/gla", "--operator gla_layer --stage gpu_bf16"),
    ("06_scan/scan", "--operator scan --stage dispatch -B 8 -H 1536 -L 65536 --value-dim 1"),
    ("06_scan/scan", "--operator scan --stage dispatch -B 8 -H 1 -L 65536 --value-dim 1536"),
    ("06_scan/scan", "--operator scan --stage dispatch -B 8 -H 1 -L 65536 --value-dim 1536 --gate-dim 1"),
    ("06_scan/scan", "--operator scan --stage dispatch -B 1 -H 1 -L 16777216 --value-dim 1"),
    ("06_scan/scan", "--operator scan --stage dispatch --backward -B 8 -H 1536 -L 8192 --value-dim 1"),
    ("06_scan/scan", "--operator simple_gla --stage scan_fused -B 4 -H 8 -L 2048"),
    ("06_scan/scan", "--operator delta_rule --stage scan_affine -B 4 -H 8 -L 2048"),
    ("06_scan/scan", "--operator decode --stage step -B 256 -H 8 -L 1"),
    ("06_scan/scan", "--operator decode --delta-rule --stage step -B 256 -H 8 -L 1"),
]  # fmt: skip


def problems():
    for executable, options in OPERATORS:
        for B, H, L in SHAPES:
            yield executable, [*options, "-B", str(B), "-H", str(H), "-L", str(L)]
    for executable, operator in GRADIENTS:
        for B, H, L in GRADIENT_SHAPES:
            options = ["--operator", operator, "--stage", "dispatch", "--backward"]
            yield executable, [*options, "-B", str(B), "-H", str(H), "-L", str(L)]
    for executable, options in OTHERS:
        yield executable, options.split()


def graph_time(build: Path, executable: str, options: list[str]) -> float | None:
    """Milliseconds, or of a stage without a graph time its median; None where the run failed."""
    command = [str(build / executable), *options, "--seed", "1", "--repeat", "20", "--json", "-"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        print(f"{' '.join(command)}: status {run.returncode}\n{run.stderr}", file=sys.stderr)
        return None
    times = json.loads(run.stdout)["results"][0]["stages"][-1]["time_ms"]
    return times["graph"] if times.get("graph") else times["median"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="", help="problems whose command contains this text")
    arguments = parser.parse_args()
    for build in (arguments.before, arguments.after):
        if not build.is_dir():
            parser.error(f"{build} is no folder")
    status = 0
    print(f"{'problem':<95} {'before ms':>10} {'after ms':>10} {'ratio':>7}")
    for executable, options in problems():
        name = executable.split("/")[1] + " " + " ".join(options).replace("--operator ", "").replace("--stage ", "")
        if arguments.only not in name or not (arguments.after / executable).exists():
            continue
        times = {"before": [], "after": []}
        for _ in range(arguments.rounds):
            times["before"].append(graph_time(arguments.before, executable, options))
            times["after"].append(graph_time(arguments.after, executable, options))
        if None in times["before"] or None in times["after"]:
            print(f"{name:<95} {'failed':>10}", flush=True)
            status = 1
            continue
        before, after = min(times["before"]), min(times["after"])
        slower = after > LIMIT * before
        status = status or int(slower)
        print(f"{name:<95} {before:10.4f} {after:10.4f} {after / before:7.3f}{'  SLOWER' if slower else ''}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
