#!/usr/bin/env python3
"""What cmake/CudaArchitectures.cmake has compiled for the GPUs that are there, and for none. Needs CMake, but no nvcc."""

import os
from pathlib import Path
import subprocess
import tempfile
import unittest

ROOT = Path(__file__).resolve().parents[2]
# What `nvcc --list-gpu-arch` prints, in short.
CUDA_12_4 = "compute_75 compute_80 compute_86 compute_87 compute_89 compute_90"
CUDA_12_8 = CUDA_12_4 + " compute_100 compute_101 compute_120"
CUDA_13_0 = CUDA_12_4 + " compute_100 compute_110 compute_103 compute_120 compute_121"


def architectures(capabilities: str, known: str) -> tuple[str, str]:
    """What is compiled for GPUs of these compute capabilities by an nvcc that knows these architectures, and all lines
    that CMake prints about it."""
    with tempfile.TemporaryDirectory() as folder:
        for name, printed in (("nvidia-smi", capabilities), ("nvcc", known)):
            program = Path(folder) / name
            program.write_text("#!/bin/sh\nprintf '%s\\n' " + printed + "\n")
            program.chmod(0o755)
        script = Path(folder) / "script.cmake"
        script.write_text(
            f"set(CMAKE_CUDA_COMPILER {folder}/nvcc)\nset(CMAKE_CUDA_COMPILER_VERSION 12.4.131)\n"
            f"include({ROOT}/cmake/CudaArchitectures.cmake)\ntutorial_architectures(found)\n"
            f'file(WRITE {folder}/found "${{found}}")\n'
        )
        path = f"{folder}:{os.environ['PATH']}"
        printed = subprocess.run(
            ["cmake", "-P", str(script)], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True
        )
        return (Path(folder) / "found").read_text(), printed.stdout + printed.stderr


class Architectures(unittest.TestCase):
    def test_real_code_for_what_the_compiler_knows(self):
        for capabilities, known, wanted in (
            ("8.0", CUDA_12_4, "80"),
            ("8.9 8.9", CUDA_12_4, "89"),
            ("9.0", CUDA_12_4, "90a"),
            ("9.0 8.6", CUDA_13_0, "90a;86"),
            ("10.0", CUDA_12_8, "100"),
            ("10.3", CUDA_13_0, "103"),
            ("12.0 7.5", CUDA_13_0, "120"),
            ("12.1", CUDA_13_0, "121"),
        ):
            with self.subTest(capabilities):
                self.assertEqual(architectures(capabilities, known), (wanted, ""))

    def test_ptx_for_what_it_does_not_know(self):
        for capabilities, known, wanted in (
            ("12.0", CUDA_12_4, "90-virtual"),
            ("12.1", CUDA_12_8, "120-virtual"),
            ("10.3", CUDA_12_8, "101-virtual"),
            ("8.8", CUDA_12_4, "87-virtual"),
        ):
            with self.subTest(capabilities):
                found, message = architectures(capabilities, known)
                self.assertEqual(found, wanted)
                self.assertRegex(message, rf"nvcc 12.4.131 .* {capabilities}: it makes PTX of \d+\.\d, .* when a program starts\n")
                self.assertEqual(message.count("\n"), 1)

    def test_without_a_gpu_that_can_be_used(self):
        for capabilities in ("", "7.5", "No devices were found"):
            with self.subTest(capabilities):
                self.assertEqual(architectures(capabilities, CUDA_12_4), ("80;90a-real;90-virtual", ""))


if __name__ == "__main__":
    unittest.main()
