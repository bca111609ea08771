#!/usr/bin/env python3
"""Bad uses of the options of chapters and of the script: each ends with status 2 and one line that says what is wrong.

Usage: bad_uses_test.py BUILD, a folder in which the chapters are built. An operator is added as an entry of BACKWARD, a use
of the script as an entry of SCRIPT.
"""

import json
from pathlib import Path
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else ROOT / "build/emulator"

SIZES = {"B": 1, "H": 2, "L": 6, "D": 4, "Dg": 1, "Dk": 3, "Dv": 4}
Q, V = ("B", "H", "L", "Dk"), ("B", "H", "L", "Dv")

# Operators with --backward: the program, the operator, what --backward needs of a file, with its dimensions, the gradient
# among them, a stage that has no backward (or None), a gradient that is refused (or None).
BACKWARD = [
    ("01_linear_attention/linear_attention", "causal_dot_product", {"q": Q, "k": Q, "v": V, "do": V}, "do", "recurrent_eigen", "dfinal_state"),
    ("01_linear_attention/linear_attention", "causal_attention", {"q": Q, "k": Q, "v": V, "do": V}, "do", None, "dfinal_state"),
    ("01_linear_attention/linear_attention", "bidirectional_attention", {"q": Q, "k": Q, "v": V, "do": V}, "do", None, "dfinal_state"),
    ("02_chunkwise/chunkwise", "linear_attention", {"q": Q, "k": Q, "v": V, "do": V}, "do", "pipelined", "dfinal_z"),
    ("03_gla/gla", "gla", {"q": Q, "k": Q, "v": V, "g": Q, "do": V}, "do", "parallel_log", None),
    ("06_scan/scan", "scan", {"x": "BHLD", "log_decay": ["B", "H", "L", "Dg"], "dy": "BHLD"}, "dy", "cub", "dfinal_state"),
]  # fmt: skip

# Operators with --lengths: the program, the operator, what a file needs beside cu_seqlens, with its dimensions.
PACKED = [
    ("02_chunkwise/chunkwise", "linear_attention", {"q": Q, "k": Q, "v": V}),
    ("03_gla/gla", "gla", {"q": Q, "k": Q, "v": V, "g": Q}),
    ("04_fused_chunk/fused_chunk", "gla", {"q": Q, "k": Q, "v": V, "g": Q}),
    ("04_fused_chunk/fused_chunk", "simple_gla", {"q": Q, "k": Q, "v": V, "g": ("B", "H", "L")}),
    ("05_deltanet_wy/deltanet_wy", "delta_rule", {"q": Q, "k": Q, "v": V, "beta": ("B", "H", "L")}),
    ("05_deltanet_wy/deltanet_wy", "gated_delta_rule", {"q": Q, "k": Q, "v": V, "beta": ("B", "H", "L"), "g": ("B", "H", "L")}),
    ("05_deltanet_wy/deltanet_wy", "kda", {"q": Q, "k": Q, "v": V, "beta": ("B", "H", "L"), "g": Q}),
]

# The same with --backward, which takes the gradient of o and that of each sequence's final state.
_GATES, _ROWS = ("B", "H", "L"), {"q": Q, "k": Q, "v": V}
PACKED_GRADIENTS = [
    ("02_chunkwise/chunkwise", "linear_attention", {**_ROWS, "do": V}),
    ("03_gla/gla", "gla", {**_ROWS, "g": Q, "do": V}),
    ("04_fused_chunk/fused_chunk", "simple_gla", {**_ROWS, "g": _GATES, "do": V}),
    ("05_deltanet_wy/deltanet_wy", "delta_rule", {**_ROWS, "beta": _GATES, "do": V}),
    ("05_deltanet_wy/deltanet_wy", "gated_delta_rule", {**_ROWS, "g": _GATES, "beta": _GATES, "do": V}),
    ("05_deltanet_wy/deltanet_wy", "kda", {**_ROWS, "g": Q, "beta": _GATES, "do": V}),
]

# The words after ./tutorial, and what the message has.
SCRIPT = [
    (["diff", "9"], "there is no chapter '9'"),
    (["diff", "nope"], "there is no chapter 'nope'"),
    (["diff", ""], "there is no chapter ''"),
    (["diff", "a\nb"], "there is no chapter 'a?b'"),
    (["diff", "../01_linear_attention/.."], "there is no chapter"),
    (["diff", "1", "nope"], "has no stage 'nope'"),
    (["diff", "1", ""], "has no stage ''"),
    (["diff", "1", "causal_dot_product/nope"], "has no stage 'causal_dot_product/nope'"),
    (["diff", "1", "lmha", "more"], "unrecognized arguments: more"),
    (["diff", "1", "LMHA"], "has no stage 'LMHA'"),
    (["diff", "--nonsense"], "--nonsense"),
    (["diff", "--no-comment"], "--no-comment"),
    (["diff", "--no-comments"], "--no-comments needs a stage"),
    (["diff", "1", "--whole"], "--whole needs a stage"),
    (["diff", "--check", "--write"], "choose one"),
    (["diff", "1", "--check"], "--check is about all stages"),
    (["diff", "1", "lmha", "--write"], "--write is about all stages"),
    (["diff", "--check", "--no-comments"], "--check is about all stages"),
    (["diff", "--backend", "cuda"], "diff compares sources"),
    (["diff", "--backend", "gpu"], "--backend is cuda or emulator, not 'gpu'"),
    (["diff", "--backend"], "--backend is cuda or emulator, not ''"),
    (["run", "1", "--backward"], "options of a chapter or of ctest go after --"),
    (["run", "7"], "there is no chapter '7'"),
    (["run", "1", "2", "--", "--json", "r.json"], "name one chapter"),
    (["docs", "--", "--list"], "docs runs nothing"),
    (["docs", "--check", "1"], "docs takes no chapter"),
    (["run", "--check"], "--check is an option of docs, diff and exercise"),
    (["setup", "1"], "setup takes no chapter"),
    (["test", "6"], "test takes no chapter"),
    (["backward"], "there is no command 'backward'"),
]  # fmt: skip


def number_of(dtype: str, value: float) -> bytes:
    return struct.pack({"F32": "<f", "F64": "<d", "I32": "<i"}[dtype], int(value) if dtype == "I32" else value)


def write(path: Path, tensors: dict, metadata: dict | None = None) -> None:
    """A safetensors file of tensors filled with a number, or with a list: {name: (dtype, shape, value)}."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, shape, value) in tensors.items():
        count = 1
        for size in shape:
            count *= size
        begin = len(data)
        values = value if isinstance(value, list) else [value] * count
        data += b"".join(number_of(dtype, each) for each in values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class BadUses(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.count = 0

    def refused(self, command: list, words: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder, timeout=60)
        self.count += 1
        with self.subTest(command=" ".join(map(str, command))):
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)
            self.assertIn(words, done.stderr)

    def test_backward(self):
        for program, operator, dims, gradient, forward_only, refused_gradient in BACKWARD:
            with self.subTest(operator=operator):
                self.backward(BUILD / program, operator, dims, gradient, forward_only, refused_gradient)

    def test_lengths(self):
        for program, operator, dims in PACKED:
            with self.subTest(operator=operator):
                self.lengths([BUILD / program, "--operator", operator], dims)
        for program, operator, dims in PACKED_GRADIENTS:
            with self.subTest(operator=operator + " --backward"):
                self.lengths([BUILD / program, "--operator", operator, "--backward"], dims, "dfinal_state")
        self.refused([BUILD / "02_chunkwise/chunkwise", "--lengths=3", "--normalize"], "choose one")

    def lengths(self, chosen: list, dims: dict, state: str = "initial_state"):
        path = self.folder / "in"
        good = {name: ("F32", [SIZES[symbol] for symbol in symbols], 0.0) for name, symbols in dims.items()}

        def with_offsets(*offsets: int, words: str, change: dict | None = None) -> None:
            write(path, {**good, **(change or {}), "cu_seqlens": ("I32", [len(offsets)], list(offsets))})
            self.refused([*chosen, "--input", path], words)

        with_offsets(0, 4, 3, 6, words="cu_seqlens[2] = 3: falls")
        with_offsets(0, 7, 6, words="cu_seqlens[1] = 7: is beyond L = 6")
        with_offsets(0, 3, 7, words="cu_seqlens[2] = 7: must be L = 6")
        with_offsets(1, 3, 6, words="cu_seqlens[0] = 1: must be 0")
        with_offsets(0, words="cu_seqlens [1] has N+1 = 1")
        two = {name: ("F32", [2, *shape[1:]], 0.0) for name, (_, shape, _) in good.items()}
        with_offsets(0, 3, 6, words="B = 2: packed sequences have B = 1", change=two)
        with_offsets(0, 3, 6, words=f"{state} has 3", change={state: ("F32", [3, 2, 3, 4], 0.0)})
        for option, words in (
            ("--lengths=3,,4", "--lengths: '' is not a whole number"),
            ("--lengths=3,-4", "--lengths: -4 is not between 0 and 2147483647"),
            ("--lengths=0,0", "L = 0: must be between 1"),
            ("--lengths=2147483647,1", "--lengths: more than 2147483647 positions"),
            ("--lengths=3,4 --batch=2", "B = 2: packed sequences have B = 1"),
            ("--lengths=3,4 --length=9", "L = 9 was asked for, but --lengths has 7"),
        ):
            self.refused([*chosen, *option.split()], words)
        write(path, {**good, "cu_seqlens": ("I32", [3], [0, 3, 6])})
        self.refused([*chosen, "--lengths=3,3", "--input", path], f"--lengths: {path} has cu_seqlens")

    def test_key_heads(self):
        for operator in ("gated_delta_rule", "kda"):
            chosen = [BUILD / "05_deltanet_wy/deltanet_wy", "--operator", operator]
            for option, words in (
                ("--key-heads=3 -H 4", "Hk = 3 does not divide H = 4"),
                ("--key-heads=8 -H 4", "Hk = 8 does not divide H = 4"),
                ("--key-heads=0", "--key-heads: 0 is not between 1"),
                ("--key-heads=x", "--key-heads: 'x' is not a whole number"),
                ("--key-heads=2 -H 4 -B 2 --layout blhd", "--layout blhd: beside --key-heads for B = 1 alone"),
            ):
                self.refused([*chosen, *option.split()], words)
        path = self.folder / "in"
        shapes = {"q": [1, 3, 5, 8], "k": [1, 3, 5, 8], "v": [1, 4, 5, 8], "g": [1, 4, 5], "beta": [1, 4, 5]}
        chosen = [BUILD / "05_deltanet_wy/deltanet_wy", "--operator", "gated_delta_rule", "--input", path]
        write(path, {name: ("F32", shape, 0.0) for name, shape in shapes.items()})
        self.refused(chosen, "Hk = 3 does not divide H = 4")
        write(path, {name: ("F32", [1, 2, *shape[2:]] if name in "qk" else shape, 0.0) for name, shape in shapes.items()})
        self.refused([*chosen, "--key-heads=4"], "Hk = 4 was asked for, but q has 2")

    def test_pool(self):
        path, slots = self.folder / "in", ("F32", [3, 2, 3, 4], 0.0)
        shapes = {"q": Q, "k": Q, "v": V, "g": ("B", "H", "L")}
        good = {name: ("F32", [2, *(SIZES[symbol] for symbol in dims[1:])], 0.0) for name, dims in shapes.items()}
        chosen = [BUILD / "06_scan/scan", "--operator", "decode", "--pool", "--input", path]
        for indices, words in (
            ([0, 3], "state_indices[1] = 3: must be a slot of the pool, or -1"),
            ([0, -2], "state_indices[1] = -2: must be a slot of the pool, or -1"),
            ([1, 1], "state_indices[1] = 1: is also state_indices[0]"),
            ([0, 1, 2], "state_indices [3] has B = 3, but q has 2"),
        ):
            write(path, {**good, "state_pool": slots, "state_indices": ("I32", [len(indices)], indices)})
            self.refused(chosen, words)
        write(path, {**good, "state_pool": slots})
        self.refused(chosen, "lacks inputs of decode: state_indices")
        write(path, {**good, "state_indices": ("I32", [2], [0, 1])})
        self.refused(chosen, "lacks inputs of decode: state_pool")
        write(path, {**good, "state_pool": slots, "state_indices": ("I32", [2], [0, 1])})
        self.refused([BUILD / "06_scan/scan", "--operator", "decode", "--input", path], "state_indices is of no use to decode")
        self.refused([BUILD / "06_scan/scan", "--operator", "decode", "--pool", "--normalized"], "--normalized and --pool: choose one")

    def backward(self, program, operator, dims, gradient, forward_only, refused_gradient):
        base = [program, "--backward"]
        chosen = [*base, "--operator", operator]
        path = self.folder / "in"
        good = {name: ("F32", [SIZES[symbol] for symbol in symbols], 0.0) for name, symbols in dims.items()}
        write(path, good)
        done = subprocess.run([*chosen, "--input", path, "--cpu-only", "--repeat", "1"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("all passed", done.stdout)

        def with_options(*options: str, words: str) -> None:
            self.refused([*chosen, *options], words)

        def with_file(change: dict, words: str, *options: str, metadata: dict | None = None) -> None:
            tensors = {name: tensor for name, tensor in {**good, **change}.items() if tensor is not None}
            write(path, tensors, metadata)
            self.refused([*chosen, "--input", path, *options], words)

        # What is not there.
        self.refused([program, "--backwards"], "--backwards")
        self.refused([program, "--Backward"], "--Backward")
        self.refused([program, "-backward"], "-backward")
        self.refused([program, "--backward=maybe"], "backward")
        self.refused([program, "--no-backward"], "--no-backward")
        self.refused([*base, "backward"], "backward")
        self.refused([*base, "--operator", "nope"], "there is no 'nope'")
        self.refused([*base, "--operator", ""], "a name is missing")
        with_options("--stage", "nope", words="there is no 'nope'")
        with_options("--stage", "", words="a name is missing")
        with_options("--stage", "sequential,,dispatch", words="a name is missing")
        if forward_only:
            with_options("--stage", forward_only, words=f"there is no '{forward_only}'")
        self.refused([program, "--list", "--backward"], "--list: takes --operator and --json")
        # Numbers.
        for option in ("-B", "-H", "-L", "--value-dim"):
            for text, words in (("0", "is not between"), ("-1", "is not between"), ("x", "not a whole number"),
                                ("1.5", "not a whole number"), (" ", "not a whole number")):  # fmt: skip
                with_options(f"{option}={text}" if option.startswith("--") else f"{option}{text}", words=words)
        with_options("-L", "2147483647", "-H", "1000", words="memory")
        with_options("--repeat", "-1", words="is not between")
        with_options("--warmup", "-1", words="is not between")
        with_options("--seed", "-1", words="not a whole number")
        with_options("--scale", "nan", words="--scale")
        if operator not in ("linear_attention", "gla"):  # they have a stage on the CPU that takes chunks
            with_options("--chunk", "16", words="--chunk: of no use")
        else:
            with_options("--chunk", "2147483647", words="--chunk: 2147483647 is longer than the sequence, L = 256")
            with_options("--chunk", "65", "-L", "64", words="--chunk: 65 is longer than the sequence, L = 64")
        with_options("--prompt", "1", words="--prompt: of no use")
        with_options("--weights", str(path), words="--weights: of no use")
        # Files.
        with_options("--input", "none", words="No such file")
        with_options("--input", str(self.folder), words="is a folder")
        with_options("--input", "/dev/null", words="is not a regular file")
        with_options("--output", str(self.folder), words="Is a directory")
        with_options("--json", "none/r.json", words="No such file")
        with_options("--output", "r", "--json", "./r", words="are both")
        with_options("--input", str(path), "--output", str(path), words="is both input and output")
        for name in good:
            with_file({name: None}, f"lacks inputs of {operator}: {name}")
        with_file({gradient: None, gradient.upper(): good[gradient]}, f"lacks inputs of {operator}: {gradient}")
        for i, symbol in enumerate(dims[gradient]):
            shape = list(good[gradient][1])
            shape[i] += 1
            with_file({gradient: ("F32", shape, 0.0)}, symbol)
            shape[i] = 0
            with_file({gradient: ("F32", shape, 0.0)}, "= 0")
        with_file({gradient: ("F32", good[gradient][1][:2], 0.0)}, "dimensions")
        with_file({gradient: ("I32", good[gradient][1], 0)}, "has to be floating-point")
        for value in (float("nan"), float("inf"), float("-inf")):
            with_file({gradient: ("F32", good[gradient][1], value)}, "is not finite")
        with_file({gradient: ("F64", good[gradient][1], 1e300)}, "is beyond fp32")
        for gate in {"g", "log_decay"} & set(good):
            with_file({gate: ("F32", good[gate][1], 1e-3)}, "must be at most 0")
        if refused_gradient:
            with_file({refused_gradient: good[gradient]}, f"{refused_gradient} is of no use")
        with_file({}, "was asked for", "-L", str(SIZES["L"] + 1))
        path.write_bytes(path.read_bytes()[:-1])
        with_options("--input", str(path), words=str(path))
        self.assertGreater(self.count, 60)

    def test_layouts_without_heads(self):
        for program, operator in (("03_gla/gla", "gla_layer"), ("06_scan/scan", "convolution")):
            self.refused([BUILD / program, "--operator", operator, "--layout", "blhd"], f"--layout: of no use to {operator}")

    def test_script(self):
        for arguments, words in SCRIPT:
            self.refused([ROOT / "tutorial", *arguments], words)


if __name__ == "__main__":
    unittest.main()
