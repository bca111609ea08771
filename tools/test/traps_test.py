#!/usr/bin/env python3
"""A kernel has a trap where, and only where, it needs instructions that the architecture lacks.

Two descriptions of this have to agree: the conditions in the headers of common/device, behind which the wrappers of
instructions end in __trap(), and the code that the compiler makes of kernels for several architectures. Needs nvcc; without
it, `traps_test.py Headers` runs.
"""

from concurrent.futures import ThreadPoolExecutor
import os
from pathlib import Path
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import compile_cuda  # noqa: E402

HEADERS = ROOT / "common/device"
# What an architecture has to be. The second one includes the first.
CONDITIONS = ("TUTORIAL_SM90", "TUTORIAL_SM90A")
# What these architectures are; all three have other text for the compiler.
ARCHITECTURES = {"80": (), "120": ("TUTORIAL_SM90",), "90a": CONDITIONS}
# With bulk copies; with products of warpgroups, too; with a multicast, too.
STAGES = [f"02_chunkwise/linear_attention/{name}.cu" for name in ("10_bulk_copies", "11_warpgroup_mma", "dispatch/cluster")]

BRANCH = re.compile(r"#(?:el)?if (TUTORIAL_SM90A?)(?: && !TUTORIAL_EMULATOR)?$")
CLASS = re.compile(r"(?:class|struct) (\w+)\b.*\{$")
FUNCTION = re.compile(r"__device__ [^(=]*?\b(\w+)\(")
INSTRUCTION = re.compile(r"(?<![\w.:])[a-z]\w*(?:(?:\.|::)\w+)+|%cluster_\w+")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
# Of the text of these wrappers, what all architectures have.
OLD = ("setp.", "mov.", "selp.", "createpolicy.")


def wrappers(folder: Path = HEADERS) -> dict[str, str]:
    """The wrappers that end in a trap, `function` or `Class::function`: what they need so as not to."""
    found = {}
    for header in sorted(folder.glob("*.cuh")):
        scope = name = condition = ""
        for line in header.read_text().splitlines():
            if match := CLASS.match(line):
                scope = match[1] + "::"
            elif line == "};":
                scope = ""
            elif match := FUNCTION.search(line):
                name = scope + match[1]
                condition = ""
            elif match := BRANCH.match(line):
                condition = match[1]
            elif line.strip() == "__trap();":
                if not condition or found.get(name, condition) != condition:
                    raise ValueError(f"{header.name}: what {name} needs is not one of {CONDITIONS}")
                found[name] = condition
    return found


def instructions(folder: Path = HEADERS) -> dict[str, set[str]]:
    """How the instructions begin that stand behind each condition, in wrappers that end in a trap where it does not hold.
    (The functions of early_start.cuh do nothing there, because nothing has to be done.)"""
    found = {condition: set() for condition in CONDITIONS}
    for header in sorted(folder.glob("*.cuh")):
        text = header.read_text()
        if "__trap()" not in text and header.name != "wgmma_instructions.cuh":
            continue
        condition = ""
        for line in text.splitlines():
            if match := BRANCH.match(line):
                condition = match[1]
            elif line in ("#else", "#endif"):
                condition = ""
            elif condition:
                for string in STRING.findall(line):
                    found[condition].update(i for i in INSTRUCTION.findall(string) if not i.startswith(OLD))
    return found


def kernels(architecture: str, stage: str) -> dict[str, str]:
    """The PTX of a stage's kernels."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stage.ptx"
        code = f"-gencode=arch=compute_{architecture},code=compute_{architecture}"
        subprocess.run(
            [compile_cuda.find_nvcc(), "-std=c++20", "-I.", "-ptx", code, "-o", str(file), stage], cwd=ROOT, check=True
        )
        text = file.read_text()
    # Anonymous namespaces have a number of the compilation in their names.
    text = re.sub(r"_GLOBAL__N__[0-9a-f]+_", "_GLOBAL__N__", text)
    text = re.sub(r"_cu_[0-9a-f]{8}", "_cu", text)
    assert ".func" not in text, stage  # all functions are inlined
    parts = re.split(r"^(?:\.\w+ )?\.entry (\w+)", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def needs(ptx: str, of: dict[str, set[str]]) -> str:
    """The condition of a kernel's instructions, as the architecture that has them all shows it; or nothing."""
    for condition in reversed(CONDITIONS):
        if any(instruction in ptx for instruction in of[condition]):
            return condition
    return ""


class Headers(unittest.TestCase):
    def test_wrappers_are_found(self):
        found = wrappers()
        self.assertEqual(found["load_tile"], "TUTORIAL_SM90")
        self.assertEqual(found["Barrier::wait"], "TUTORIAL_SM90")
        self.assertEqual(found["load_tile_multicast"], "TUTORIAL_SM90A")
        self.assertEqual(found["wgmma"], "TUTORIAL_SM90A")
        self.assertEqual(found["decrease_registers"], "TUTORIAL_SM90A")
        traps = sum(header.read_text().count("__trap();") for header in HEADERS.glob("*.cuh"))
        self.assertEqual(len(found) + 1, traps)  # wgmma() has two forms

    def test_instructions_are_found(self):
        found = instructions()
        self.assertIn("mbarrier.init.shared::cta.b64", found["TUTORIAL_SM90"])
        self.assertIn("%cluster_ctarank", found["TUTORIAL_SM90"])
        self.assertTrue(any(i.startswith("wgmma.mma_async") for i in found["TUTORIAL_SM90A"]), found)

    def test_no_other_source_asks_for_the_architecture(self):
        """tools/compile_cuda.py relies on it."""
        asked = {}
        for pattern in ("*.cu", "*.cuh", "*.hpp"):
            for file in ROOT.glob(f"*/**/{pattern}"):
                name = file.relative_to(ROOT).as_posix()
                if name.startswith("build/") or not (text := file.read_text()).count("__CUDA_ARCH"):
                    continue
                text = text.replace("#if defined(__CUDA_ARCH__)\n", "")  # on the GPU, whichever it is
                if lines := [line for line in text.splitlines() if "__CUDA_ARCH" in line]:
                    asked[name] = lines
        wanted = ["#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900", "#if defined(__CUDA_ARCH_FEAT_SM90_ALL)"]
        self.assertEqual(asked, {compile_cuda.CONDITIONS: wanted})


class Code(unittest.TestCase):
    def test_traps_are_where_instructions_are_missing(self):
        of = instructions()
        wanted = [(architecture, stage) for stage in STAGES for architecture in ARCHITECTURES]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            code = dict(zip(wanted, pool.map(lambda pair: kernels(*pair), wanted)))
        seen = {}
        for stage in STAGES:
            for kernel, ptx in code["90a", stage].items():
                need = needs(ptx, of)
                seen.setdefault(need, set()).add(stage)
                for architecture, has in ARCHITECTURES.items():
                    with self.subTest(stage=stage, kernel=kernel, architecture=architecture, need=need):
                        trap = bool(re.search(r"^\s*trap;", code[architecture, stage][kernel], re.MULTILINE))
                        self.assertEqual(trap, bool(need) and need not in has)
        self.assertEqual(seen, {CONDITIONS[0]: {STAGES[0]}, CONDITIONS[1]: set(STAGES[1:])})


if __name__ == "__main__":
    unittest.main()
