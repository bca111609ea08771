"""What timings are measured on, and with which sources."""

from hashlib import sha1
import os
from pathlib import Path
import re
import subprocess


def output_of(*command: str, cwd: Path | None = None) -> str:
    """What a command prints; nothing where it fails or does not exist."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=cwd).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def commit(root: Path) -> str:
    """The commit, with a digest of what was changed since: `1a2b3c4d5e6f` or `1a2b3c4d5e6f+9f8e7d6c`. Text and pictures
    do not count."""
    head = output_of("git", "rev-parse", "--short=12", "HEAD", cwd=root)
    if not head:
        return "unknown"
    changes = output_of("git", "diff", "HEAD", "--", ".", ":!*.md", ":!*.svg", ":!docs", ":!tools", cwd=root)
    return head + ("+" + sha1(changes.encode()).hexdigest()[:8] if changes else "")


def gpu_properties() -> dict:
    """What nvidia-smi says of the GPU that a program sees first; nothing where there is none."""
    fields = {
        "name": "name",
        "driver": "driver_version",
        "sm_mhz": "clocks.sm",
        "sm_max_mhz": "clocks.max.sm",
        "memory_mhz": "clocks.mem",
        "memory_max_mhz": "clocks.max.mem",
        "power_limit_w": "power.limit",
        "mig": "mig.mode.current",
    }
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
    line = output_of(
        "nvidia-smi", f"--id={chosen}", f"--query-gpu={','.join(fields.values())}", "--format=csv,noheader,nounits"
    )
    values = [value.strip() for value in line.split(",")]
    if len(values) != len(fields):
        return {}
    result = dict(zip(fields, values))
    for key in ("sm_mhz", "sm_max_mhz", "memory_mhz", "memory_max_mhz", "power_limit_w"):
        result[key] = float(result[key]) if re.fullmatch(r"[\d.]+", result[key]) else None
    return result


def cuda_version(build: Path) -> str | None:
    """The version of the compiler that a build was made with."""
    try:
        cache = (build / "CMakeCache.txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    compiler = re.search(r"^CMAKE_CUDA_COMPILER:\w+=(.+)$", cache, re.M)
    release = re.search(r"release ([\d.]+)", output_of(compiler[1], "--version")) if compiler else None
    return release[1] if release else None


def describe(build: Path) -> dict:
    """What can be said of this machine before anything has run on it."""
    gpu = gpu_properties()
    return {
        "gpu": gpu.get("name"),
        "driver": gpu.get("driver"),
        "cuda": cuda_version(build),
        "mig": gpu.get("mig"),
        "power_limit_w": gpu.get("power_limit_w"),
        "clocks_mhz": {
            key: gpu.get(f"{key}_mhz") for key in ("sm", "sm_max", "memory", "memory_max")
        },
        "cpu": None,
        "cpu_threads": None,
        "limits": {},
    }


LIMITS = (
    "copy_bandwidth_gb_s",
    "fp32_tflop_s",
    "tensor_tflop_s",
    "ex2_tera_s",
    "cpu_copy_bandwidth_gb_s",
    "cpu_fp32_tflop_s",
)


def add_device(machine: dict, device: dict) -> None:
    """Completes it with what a chapter found out. Each process measures the limits anew; the best of them stands here,
    and a timing's own limit is that of its process."""
    if machine["gpu"] is None and device["backend"] == "cuda" and device["name"] != device["cpu_name"]:
        machine["gpu"] = device["name"]
    machine["cpu"] = device["cpu_name"]
    machine["cpu_threads"] = device["cpu_threads"]
    for name in LIMITS:
        value = device.get(name)
        if value is not None:
            machine["limits"][name] = max(value, machine["limits"].get(name, 0))


def same(a: dict, b: dict) -> bool:
    """Whether timings of the one may stand beside those of the other. What is not known of one of them tells nothing."""
    pairs = [(a.get(key), b.get(key)) for key in ("gpu", "driver", "cuda", "mig", "power_limit_w")]
    return all(x == y for x, y in pairs if x is not None and y is not None)
