#!/usr/bin/env python3
"""The operators as a package for other programs: examples/call_gla, built against a build's tree and against what
`cmake --install` gives, and each operator linked with its own target alone.

Usage: package_test.py BUILD [TEST ...], a folder in which everything is built, or for the test against the tree package_gla.
Programs of a build of the preset cuda only run where there is a GPU.
"""

from pathlib import Path
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else ROOT / "build/emulator"
ON_GPU = "TUTORIAL_BACKEND:STRING=cuda" in (BUILD / "CMakeCache.txt").read_text()

# Of each target, the headers and what a program calls: (arguments, function).
OPERATORS = {
    "causal_dot_product": (
        ["01_linear_attention/causal_dot_product.hpp", "01_linear_attention/causal_dot_product_backward.hpp"],
        [("causal_dot_product::Arguments", "causal_dot_product::dispatch"),
         ("causal_dot_product_backward::Arguments", "causal_dot_product_backward::dispatch")],
    ),
    "linear_attention": (
        ["02_chunkwise/packed.hpp", "02_chunkwise/normalized.hpp", "02_chunkwise/normalized_backward.hpp",
         "02_chunkwise/linear_attention_backward.hpp", "02_chunkwise/packed_backward.hpp"],
        [("linear_attention::Bf16Arguments", "linear_attention::dispatch"),
         ("linear_attention::PackedBf16Arguments", "linear_attention::dispatch_packed"),
         ("linear_attention::NormalizedBf16Arguments", "linear_attention::dispatch_normalized"),
         ("linear_attention::NormalizedBackwardBf16Arguments", "linear_attention::dispatch_normalized_backward"),
         ("linear_attention::Bf16BackwardArguments", "linear_attention::dispatch_backward"),
         ("linear_attention::PackedBf16BackwardArguments", "linear_attention::dispatch_packed_backward")],
    ),
    "gla": (
        ["03_gla/gla.hpp", "03_gla/gla_backward.hpp", "03_gla/packed.hpp", "03_gla/packed_backward.hpp"],
        [("gla::Bf16Arguments", "gla::dispatch"), ("gla::FloatArguments", "gla::dispatch"),
         ("gla::Bf16BackwardArguments", "gla::dispatch_backward"), ("gla::FloatBackwardArguments", "gla::dispatch_backward"),
         ("gla::PackedBf16Arguments", "gla::dispatch_packed"),
         ("gla::PackedBf16BackwardArguments", "gla::dispatch_packed_backward")],
    ),
    "retention": (
        ["03_gla/retention.hpp", "03_gla/retention/requirements.hpp", "03_gla/retention_backward.hpp"],
        [("retention::Bf16Arguments", "retention::gpu"), ("retention::FloatArguments", "retention::gpu"),
         ("retention::Bf16BackwardArguments", "retention::dispatch_backward")],
    ),
    "fused_gla": (
        ["04_fused_chunk/fused_gla.hpp", "04_fused_chunk/packed_gla.hpp"],
        [("gla::Bf16Arguments", "fused_gla::dispatch"), ("fused_gla::PackedBf16Arguments", "fused_gla::dispatch_packed")],
    ),
    "simple_gla": (
        ["04_fused_chunk/simple_gla.hpp", "04_fused_chunk/packed_simple_gla.hpp", "04_fused_chunk/simple_gla_backward.hpp",
         "04_fused_chunk/packed_backward.hpp"],
        [("simple_gla::Bf16Arguments", "simple_gla::dispatch"),
         ("simple_gla::PackedBf16Arguments", "simple_gla::dispatch_packed"),
         ("simple_gla::Bf16BackwardArguments", "simple_gla::dispatch_backward"),
         ("simple_gla::PackedBf16BackwardArguments", "simple_gla::dispatch_packed_backward")],
    ),
    "scan": (
        ["06_scan/scan.hpp", "06_scan/scan_backward.hpp", "06_scan/scan/requirements.hpp"],
        [("scan::Arguments", "scan::dispatch"), ("scan::BackwardArguments", "scan::dispatch_backward")],
    ),
    "short_convolution": (
        ["06_scan/short_convolution.hpp"],
        [(f"short_convolution::{type}Arguments", "short_convolution::dispatch") for type in ("Float", "Bf16")]
        + [(f"short_convolution::{type}BackwardArguments", "short_convolution::dispatch_backward") for type in ("Float", "Bf16")],
    ),
    "decode": (
        ["06_scan/decode.hpp", "06_scan/decode_pool.hpp"],
        [("decode::Bf16Arguments", f"decode::dispatch<tutorial::decode::Rule::{rule}>")
         for rule in ("simple_gla", "gla", "delta_rule", "gated_delta_rule", "kda", "normalized")]
        + [("decode::Bf16PoolArguments", "decode::dispatch_pool_bf16<tutorial::decode::Rule::kda>")],
    ),
    **{
        name: (
            [f"05_deltanet_wy/{name}.hpp", f"05_deltanet_wy/{name}_backward.hpp", f"05_deltanet_wy/packed_{name}.hpp",
             "05_deltanet_wy/packed_backward.hpp"],
            [(f"{name}::Bf16Arguments", f"{name}::dispatch"), (f"{name}::Bf16BackwardArguments", f"{name}::dispatch_backward"),
             (f"{name}::PackedBf16Arguments", f"{name}::dispatch_packed"),
             (f"{name}::PackedBf16BackwardArguments", f"{name}::dispatch_packed_backward")],
        )
        for name in ("delta_rule", "gated_delta_rule", "kda")
    },
}  # fmt: skip

# Symbols of what the runner needs, and of the runner.
RUNNER = re.compile(r"\b(fmt::|CLI::|nlohmann::|Eigen::|GOMP_|tutorial::(Operator|Chapter|Problem|Call|Tensor)\b)")


def has_gpu() -> bool:
    return shutil.which("nvidia-smi") is not None and subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode == 0


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)

    @property
    def installed(self) -> Path:
        """Where the package is installed, by the first test that asks."""
        path = self.folder / "installed"
        if not path.exists():
            self.call("cmake", "--install", BUILD, "--prefix", path)
        return path

    @classmethod
    def call(cls, *command) -> str:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
        return done.stdout

    def build(self, source: Path, *options: str) -> Path:
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        self.call("cmake", "-S", source, "-B", folder, "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror", *options)
        self.call("cmake", "--build", folder)
        return folder

    def run_example(self, *options: str) -> None:
        built = self.build(ROOT / "examples/call_gla", *options)
        if not ON_GPU or has_gpu():
            self.assertIn("o = 1.99219, ", self.call(built / "call_gla"))

    def test_example_against_the_tree(self):
        self.run_example(f"-Dlinear_attention_DIR={BUILD}/package")

    def test_example_against_the_installed_package(self):
        self.run_example(f"-DCMAKE_PREFIX_PATH={self.installed}")

    def test_the_installed_package_does_not_know_the_tree(self):
        for path in self.installed.rglob("*.cmake"):
            self.assertNotIn(str(ROOT), path.read_text(), path)
            self.assertNotIn(str(BUILD), path.read_text(), path)

    def test_nothing_of_the_runner_comes_along(self):
        headers = {str(path.relative_to(self.installed / "include/linear_attention")) for path in self.installed.rglob("*.hpp")}
        wanted = {header for names, _ in OPERATORS.values() for header in names}
        self.assertLessEqual(wanted, headers)
        self.assertEqual({name for name in headers if name.startswith(("common/chapter", "common/test"))}, set())
        for archive in self.installed.rglob("*.a"):
            found = {line for line in self.call("nm", "-C", "-u", archive).splitlines() if RUNNER.search(line)}
            self.assertEqual(found, set(), archive.name)
        self.assertEqual({p.name for p in self.installed.rglob("*.a")}, {f"liblinear_attention_{name}.a" for name in [*OPERATORS, "runtime"]})

    def test_each_operator_links_alone(self):
        source = self.folder / "links"
        source.mkdir()
        lines = ["cmake_minimum_required(VERSION 3.25)", "project(links LANGUAGES CXX)", "find_package(linear_attention REQUIRED)"]
        for name, (headers, functions) in OPERATORS.items():
            text = "".join(f'#include "{header}"\n' for header in headers) + "int main() {\n"
            for arguments, function in functions:
                pointer = f"static_cast<void (*)(const tutorial::{arguments}&)>(tutorial::{function})"
                text += f"  {{ void (*volatile f)(const tutorial::{arguments}&) = {pointer}; if (f == nullptr) return 1; }}\n"
            (source / f"{name}.cpp").write_text(text + "}\n")
            lines += [f"add_executable(use_{name} {name}.cpp)", f"target_link_libraries(use_{name} PRIVATE linear_attention::{name})"]
        (source / "CMakeLists.txt").write_text("\n".join(lines) + "\n")
        self.build(source, f"-DCMAKE_PREFIX_PATH={self.installed}")

    def test_bad_uses(self):
        source = self.folder / "bad"
        source.mkdir()
        base = "cmake_minimum_required(VERSION 3.25)\nproject(bad LANGUAGES CXX)\n"
        for lines, words in (
            ("find_package(linear_attention REQUIRED COMPONENTS nope)\n", "there is no operator nope"),
            ("find_package(linear_attention 99 REQUIRED)\n", "99"),
        ):
            (source / "CMakeLists.txt").write_text(base + lines)
            command = ["cmake", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={self.installed}"]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
            with self.subTest(lines=lines):
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
