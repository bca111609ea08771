#!/usr/bin/env python3
"""Takes a chapter's options and gives JSON like one, with invented times. FAKE_LOG names a file to which every run adds
its arguments; FAKE_TROUBLE says what goes wrong: `crash:STAGE`, `wrong:STAGE`, `hang:STAGE`, `poison:STAGE` (that stage and
those after it fail), `memory:STAGE`, with `@L` behind it at one length only."""

import argparse
import json
import os
import signal
import sys
import time

SHARED = {"B": "--batch", "H": "--heads", "L": "--length", "Dk": "--key-dim", "Dv": "--value-dim"}
VARIANTS = ("narrow",)
OPERATORS = [  # operator, form, options, stages: (name, place, dtype, ms at L = 1, power of L)
    ("simple_gla", None, SHARED, [("recurrent", "cpu", "fp64", 0.004, 1), ("quadratic", "cpu", "fp32", 1e-4, 2),
                                  ("two_kernels", "gpu", "bf16", 3e-5, 1), ("fused", "gpu", "bf16", 1e-5, 1.2)]),
    ("scan", None, {"B": "--batch", "L": "--length", "D": "--value-dim"}, [("blelloch", "gpu", "fp32", 2e-5, 1),
                                                                           ("narrow", "gpu", "fp32", 3e-5, 1)]),
    ("scan", "backward", {"B": "--batch", "L": "--length"}, [("back", "gpu", "fp32", 4e-5, 1)]),
]  # fmt: skip


def trouble(L: int) -> tuple[str, str]:
    kind, _, stage = os.environ.get("FAKE_TROUBLE", "").partition(":")
    stage, _, length = stage.partition("@")
    return (kind, stage) if not length or int(length) == L else ("", "")


def stage_json(name, place, dtype, ms, L, fails, emulated):
    counts = dict.fromkeys(("launches", "blocks", "threads", "barriers", "atomics", "bytes_read", "bytes_written"), L)
    times = {"median": ms * 1.1, "min": ms, "max": ms * 2, "runs": 50, "graph": ms if place == "gpu" else None}
    return {
        "name": name, "runs_on": "emulator" if emulated and place == "gpu" else place, "dtype": dtype,
        "reference_error": 1e-7, "passed": not fails, "time_ms": None if fails else times, "bytes": 100 * L,
        "bytes_moved": None, "launches": 1, "counts": counts if emulated and place == "gpu" else None, "flops": 10 * L,
        "work": {"fma_flops": 10 * L, "tensor_flops": 0, "exponentials": 0}, "limit_ms": ms / 4, "note": None,
        "failure": "an illegal memory access\nand more" if fails else None,
        "skipped": "L = 32 is too short" if name == "blelloch" and L == 32 else None,
    }  # fmt: skip


def main() -> int:
    p = argparse.ArgumentParser(allow_abbrev=False)
    for option in ("--batch", "--heads", "--length", "--key-dim", "--value-dim", "--seed", "--repeat", "--warmup"):
        p.add_argument(option, type=int)
    for flag in ("--list", "--cpu-only", "--backward"):
        p.add_argument(flag, action="store_true")
    for option in ("--operator", "--stage", "--json"):
        p.add_argument(option)
    a = p.parse_args()
    chapter = os.path.basename(os.path.dirname(os.path.abspath(sys.argv[0])))
    if a.list:
        print(json.dumps({"chapter": chapter, "title": "A chapter for tests", "operators": [
            {"operator": name, "form": form, "summary": "", "options": options,
             "stages": [{"name": s[0], "place": s[1], "dtype": s[2], "idea": "", "variant": s[0] in VARIANTS} for s in stages]}
            for name, form, options, stages in OPERATORS]}))  # fmt: skip
        return 0
    if "FAKE_LOG" in os.environ:
        with open(os.environ["FAKE_LOG"], "a", encoding="utf-8") as log:
            log.write(" ".join([chapter, *sys.argv[1:]]) + "\n")
    chosen = [o for o in OPERATORS if (o[1] == "backward") == a.backward and a.operator in (None, o[0])]
    names = a.stage.split(",")
    known = {s[0] for o in chosen for s in o[3]}
    options = {option for o in chosen if {s[0] for s in o[3]} & set(names) for option in o[2].values()}
    given = {"--batch": a.batch, "--heads": a.heads, "--key-dim": a.key_dim, "--value-dim": a.value_dim}
    unused = [option for option, value in given.items() if value is not None and option not in options]
    if unused or not set(names) <= known:
        print(f"fake: of no use: {unused} {set(names) - known}", file=sys.stderr)
        return 2
    kind, bad = trouble(a.length)
    if bad in names:
        if kind == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if kind == "hang":
            time.sleep(60)
        if kind == "memory":
            print(f"{os.path.basename(sys.argv[0])}: {bad} needs 9 GB of GPU memory, 1 GB are free", file=sys.stderr)
            return 2
    emulated, failed, results = os.environ.get("FAKE_BACKEND") == "emulator", False, []
    for name, _, symbols, stages in chosen:
        listed = []
        for stage, place, dtype, ms, power in stages:
            if stage in names and not (a.cpu_only and place == "gpu"):
                failed = (failed and kind == "poison") or (stage == bad and kind in ("wrong", "poison"))
                listed.append(stage_json(stage, place, dtype, ms * a.length**power, a.length, failed, emulated))
        problem = {symbol: getattr(a, option[2:].replace("-", "_")) for symbol, option in symbols.items()}
        if listed:
            results.append({"operator": name, "problem": {**problem, "scale": 1.0, "seed": 1}, "stages": listed})
    device = {"backend": "emulator" if emulated else "cuda", "name": "NVIDIA H200", "cpu_name": "CPU", "cpu_threads": 2,
              "copy_bandwidth_gb_s": 4250.0, "fp32_tflop_s": None}  # fmt: skip
    print(json.dumps({"chapter": chapter, "device": device, "results": results}))
    if all(stage["skipped"] for result in results for stage in result["stages"]):
        print("fake: no stage was checked", file=sys.stderr)
        return 2
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
