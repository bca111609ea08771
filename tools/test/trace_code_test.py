#!/usr/bin/env python3
"""What the hooks of a trace (common/device/trace.cuh) make of a kernel: nothing without TUTORIAL_TRACE, and with it code that
reads the clock. Needs nvcc, no GPU."""

import os
from pathlib import Path
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

ROOT = Path(__file__).resolve().parents[2]
NVCC = os.environ.get("CUDACXX") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
# Kernels with roles, products and bulk copies; with clusters; and one of before Hopper.
FILES = ["02_chunkwise/linear_attention/14_queued_products.cu", "02_chunkwise/linear_attention/dispatch/cluster.cu",
         "02_chunkwise/linear_attention/8_pipelined.cu"]  # fmt: skip
TRACED = ["-DTUTORIAL_TRACE=1", f'-DTUTORIAL_ROOT="{ROOT}"']
HOOK = re.compile(r"^.*\btrace::(note|note_time|Wait)\b.*\n(?:^ {20,}.*\n)*", re.MULTILINE)


def compiled(root: Path, file: str, *options: str) -> tuple[bytes, str]:
    """The cubin, and what the compiler says."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.cubin"
        command = [NVCC, "-std=c++20", "-O3", "-DNDEBUG", "-I.", "--generate-code=arch=compute_90a,code=sm_90a", "-DTUTORIAL_CUDA=1",
                   "-Xptxas=-v", *options, "-cubin", file, "-o", out]  # fmt: skip
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(done.stderr)
        return out.read_bytes(), done.stderr


def code(cubin: bytes) -> dict[str, bytes]:
    """The machine code of each kernel. Its name has a hash of the file's text, which is left out."""
    at = struct.unpack_from("<Q", cubin, 0x28)[0]
    count, names = struct.unpack_from("<HH", cubin, 0x3C)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, at + 64 * i) for i in range(count)]
    start = headers[names][4]
    sections = {}
    for header in headers:
        name = cubin[start + header[0] : cubin.index(b"\0", start + header[0])].decode()
        if name.startswith(".text."):
            name = re.sub(r"_GLOBAL__N__[0-9a-f]+_|_cu_[0-9a-f]{8}", "", name)
            sections[name] = cubin[header[4] : header[4] + header[5]]
    return sections


class TraceCodeTest(unittest.TestCase):
    def test_without_the_option_nothing_is_left_of_the_hooks(self):
        removed = 0
        with tempfile.TemporaryDirectory() as folder:
            for part in ("common", "01_linear_attention", "02_chunkwise"):
                shutil.copytree(ROOT / part, Path(folder) / part)
            for file in (Path(folder) / "common/device").glob("*.cuh"):
                text = file.read_text(encoding="utf-8")
                if file.name != "trace.cuh":
                    text, count = HOOK.subn("", text)
                    removed += count
                file.write_text(text, encoding="utf-8")
            for file in FILES:
                with self.subTest(file):
                    with_hooks, without = code(compiled(ROOT, file)[0]), code(compiled(Path(folder), file)[0])
                    self.assertTrue(with_hooks)
                    self.assertEqual(with_hooks, without)
        self.assertGreater(removed, 25)

    def test_a_traced_kernel_compiles_without_products_that_wait_for_each_other(self):
        plain = code(compiled(ROOT, FILES[0])[0])
        traced, said = compiled(ROOT, FILES[0], *TRACED)
        self.assertEqual(plain.keys(), code(traced).keys())
        self.assertNotEqual(plain, code(traced))
        self.assertNotRegex(said, r"C75\d\d")
        self.assertNotRegex(said, r"[1-9]\d* bytes spill")

    def test_the_hosts_side_compiles(self):
        compiled(ROOT, "common/device/trace_gpu.cu", *TRACED)


if __name__ == "__main__":
    unittest.main()
