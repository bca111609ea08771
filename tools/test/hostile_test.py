#!/usr/bin/env python3
"""Hostile files and extreme numbers, for every operator and form of every chapter: each run ends by itself, and one that
is refused says why in one line and ends with status 2.

Usage: hostile_test.py BUILD [--seed N] [--files N], a folder in which the chapters are built; N files that were valid once
are changed at random for each chapter. It asks the chapters what they have, so that a new operator needs no entry here.
"""

import argparse
from concurrent.futures import ThreadPoolExecutor
import json
import os
from pathlib import Path
import random
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120
LARGEST = 2**31 - 1
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}  # as several processes run at once

# The sizes of a small problem; those of a layer follow from its heads.
SIZES = {"B": 1, "H": 2, "Hk": 1, "L": 6, "Lk": 6, "Dk": 4, "Dv": 4, "D": 4, "W": 3, "Dg": 1, "N": 3, "N+1": 4, "slots": 2,
         "d_model": 8, "key_dim": 8, "value_dim": 8, "rank": 3}  # fmt: skip
METADATA = {"num_heads": "2"}
OFFSETS = [0, 2, 2, 6]  # of packed sequences

# What is no number of the kind, or beyond every one of them.
NO_SIZE = ["", " ", "-1", "-0x1", "1e3", "1.5", "0x10", "1,000", "nan", "inf", "\N{FULLWIDTH DIGIT ONE}", "1 2", "+1",
           "2147483648", "-2147483649", "4294967296", "9223372036854775808", "9" * 400]  # fmt: skip
NO_NUMBER = ["", " ", "nan", "-nan", "inf", "-inf", "1e39", "-1e39", "1e400", "9" * 400, "0x1p3", "1,5", "one"]

FORMATS = {"fp32": ("F32", "<f"), "int32": ("I32", "<i")}


def file_of(tensors: dict, metadata: dict | None = None) -> bytes:
    """A safetensors file of tensors with these values, or filled with one: {name: (dtype, shape, value or list of values)}."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, shape, value) in tensors.items():
        count = 1
        for size in shape:
            count *= size
        kind, code = FORMATS[dtype]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        if isinstance(value, list):
            data += struct.pack(f"<{count}{code[1:]}", *value)
        else:
            data += struct.pack(code, int(value) if dtype == "int32" else value) * count
    return with_header(json.dumps(header).encode(), data)


def with_header(header: bytes, data: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def hostile_headers(good: bytes, name: str) -> list[bytes]:
    """Files of which the reader can say, from the header, that they are none."""
    length = struct.unpack("<Q", good[:8])[0]
    text, data = good[8 : 8 + length], good[8 + length :]
    header = json.loads(text)
    entry = header[name]

    def changed(**change) -> bytes:
        return with_header(json.dumps({**header, name: {**entry, **change}}).encode(), data)

    begin, end = entry["data_offsets"]
    shape = entry["shape"]
    return [
        b"", b"\0", good[:7], good[:8], good[:9], good[: 8 + length], good[:-1], good + b"\0",
        *(with_header(text, data, n) for n in (0, 1, length - 1, length + 1, 2**31, 2**32, 2**63, 2**64 - 1)),
        with_header(b"", data), with_header(b"{", data), with_header(b"[]", data), with_header(b"null", data),
        with_header(b"[" * 100_000, data), with_header(b'{"a":' * 100_000, data), with_header(b"\xff\xfe" + text, data),
        with_header(text[:-1] + b',"' + name.encode() + b'":' + json.dumps(entry).encode() + b"}", data),  # twice
        with_header(json.dumps({**header, "__metadata__": 1}).encode(), data),
        with_header(json.dumps({**header, "__metadata__": {"scale": 1}}).encode(), data),
        changed(dtype="F33"), changed(dtype=""), changed(dtype=None), changed(dtype="C64"),
        changed(shape=[]), changed(shape=[1, 1, 1] + shape), changed(shape=[-n for n in shape]), changed(shape="4"),
        changed(shape=[0] + shape[1:]), changed(shape=[n + 0.5 for n in shape]), changed(shape=[2**32] * len(shape)),
        changed(shape=[2**62, 4] + shape[2:]), changed(shape=[2**64] + shape[1:]), changed(shape=[1e300] + shape[1:]),
        changed(shape=[1] * 100_000),
        changed(data_offsets=[end, begin]), changed(data_offsets=[begin, end + 1]), changed(data_offsets=[-1, end]),
        changed(data_offsets=[begin]), changed(data_offsets=[0, 2**64]), changed(data_offsets=[2**63, 2**63 + end - begin]),
        changed(data_offsets=None), changed(data_offsets=[begin + 1, end + 1]),
    ]  # fmt: skip


def mutated(good: bytes, random_: random.Random) -> bytes:
    """A valid file after up to four changes, most of them in its header."""
    data = bytearray(good)
    length = struct.unpack("<Q", good[:8])[0]
    words = [b"-1", b"0", b"1e9", b"18446744073709551616", b"null", b"{", b"]", b'"', b"\\u0000", b"\xff", b"NaN"]
    for _ in range(random_.randint(1, 4)):
        at = random_.randrange(min(len(data), 8 + length) if random_.random() < 0.8 else len(data))
        match random_.randrange(4):
            case 0:
                data[at] ^= 1 << random_.randrange(8)
            case 1:
                data[at:at] = random_.choice(words)
            case 2:
                del data[at : at + random_.randint(1, 9)]
            case 3:
                data[at : at + 9] = data[max(0, at - 20) : max(0, at - 11)]
        if not data:
            return b""
    return bytes(data)


class Operator:
    """An operator, or a form of one, of a chapter's program."""

    def __init__(self, program: Path, entry: dict):
        self.program = program
        self.form = [f"--{option}" for option in entry["form"].split("+")] if entry["form"] else []
        self.name = " ".join([entry["operator"], *self.form])
        self.options = entry["options"]
        self.inputs = entry["inputs"]
        stage = next((s for s in entry["stages"] if s["place"] == "cpu"), entry["stages"][-1])  # or dispatch
        self.command = [program, "--operator", entry["operator"], *self.form, "--repeat", "1", "--warmup", "0", "--seed", str(2**64 - 1)]
        self.one_stage = [*self.command, "--stage", stage["name"]]
        self.all_stages = [*self.command, *(["--variants"] if any(s["variant"] for s in entry["stages"]) else [])]

    def tensors(self, change: dict | None = None) -> dict:
        """Its required inputs and those of `change`, filled: with -1, which a logarithm of a gate may be, or 0.5."""
        change = change or {}
        tensors = {}
        for spec in self.inputs:
            if spec["optional"] and spec["name"] not in change:
                continue
            usual = {"g": -1, "log_decay": -1, "cu_seqlens": OFFSETS}
            value = change.get(spec["name"], usual.get(spec["name"], 0.5))
            tensors[spec["name"]] = (spec["dtype"], [SIZES[symbol] for symbol in spec["dims"]], value)
        return tensors

    def file(self, change: dict | None = None) -> bytes:
        weights = any(spec["weight"] for spec in self.inputs)
        return file_of(self.tensors(change), METADATA if weights else None)


class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.chapters = {}
        for chapter in sorted(BUILD.glob("[0-9][0-9]_*")):
            program = chapter / chapter.name.split("_", 1)[1]
            listed = subprocess.run([program, "--list", "--json", "-"], capture_output=True, text=True, check=True).stdout
            cls.chapters[program] = [Operator(program, entry) for entry in json.loads(listed)["operators"]]
        cls.operators = [operator for operators in cls.chapters.values() for operator in operators]

    def run_all(self, commands: list) -> None:
        """Runs (command, may it be accepted?, file or None), some at a time."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for command, accepted, ended in pool.map(self.run_one, *zip(*[(i, *c) for i, c in enumerate(commands)])):
                with self.subTest(command=" ".join(str(word)[:80] for word in command)):
                    self.check(accepted, ended)

    def run_one(self, number: int, command: list, accepted: bool, data: bytes | None):
        path = self.folder / f"in.{number}"
        if data is not None:
            path.write_bytes(data)
            command = [*command, "--input", path]
        try:
            ended = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False, cwd=self.folder, env=ONE_THREAD)
        except subprocess.TimeoutExpired:
            ended = None
        if data is not None and ended is not None and ended.returncode in (0, 1, 2):
            path.unlink()
        return command, accepted, ended

    def check(self, accepted: bool, ended) -> None:
        self.assertIsNotNone(ended, f"did not end within {TIMEOUT_S} s")
        if ended.returncode == 2:
            self.assertEqual((ended.stdout, ended.stderr.count(b"\n")), (b"", 1), ended.stderr[-2000:])
            self.assertLess(len(ended.stderr), 2200)
        else:
            self.assertIn(ended.returncode, (0, 1) if accepted else (2,), ended.stderr[-2000:])
            self.assertEqual(ended.stderr, b"")

    def test_no_numbers(self):
        commands = []
        for program, operators in self.chapters.items():
            base = [program, "--repeat", "1"]
            sizes = {option for operator in operators for option in operator.options.values()}
            for option in sizes | {"--repeat", "--warmup"}:
                # --devices alone means all of them, and --key-heads alone half of the heads.
                words = [word for word in NO_SIZE if word or option not in ("--devices", "--key-heads")]
                commands += [([program, f"{option}={word}"], False, None) for word in words]
            commands += [([*base, f"--seed={word}"], False, None) for word in [*NO_SIZE[:12], str(2**64), "9" * 400]]
            if any("Dk" in operator.options for operator in operators) and program.name != "linear_attention":
                commands += [([*base, f"--scale={word}"], False, None) for word in NO_NUMBER]
            commands += [([*base, f"--as={word}"], False, None) for word in [*NO_NUMBER, "8", "8.", ".9", "8.99", "0.0"]]
        self.run_all(commands)

    def test_largest_sizes(self):
        """More than any memory holds, or a chunk, prompt or gate of no sense."""
        commands = []
        for operator in self.operators:
            options = [option for option in operator.options.values() if option != "--devices"]
            for option in options:
                other = "2" if option in ("--chunk", "--prompt", "--gate-dim") else "65536"
                sizes = {o: other for o in options if o not in ("--chunk", "--prompt", "--gate-dim")} | {option: str(LARGEST)}
                commands.append(([*operator.one_stage, *(word for size in sizes.items() for word in size)], False, None))
            everything = [word for option in options for word in (option, str(LARGEST))]
            commands.append(([*operator.one_stage, *everything], False, None))
        self.run_all(commands)

    def test_ends_of_what_is_allowed(self):
        """A result may be beyond fp32 there, which is a failed check."""
        commands = []
        for operator in self.operators:
            ones = [word for symbol, option in operator.options.items() if symbol not in "NP" for word in (option, "1")]
            commands.append(([*operator.command, *ones], True, None))  # all stages
            commands.append(([*operator.one_stage, *ones, "--scale=3.4e38"], True, None))
        self.run_all(commands)

    def test_headers(self):
        commands = []
        for operators in self.chapters.values():
            operator = operators[0]
            name = operator.inputs[0]["name"]
            commands += [(operator.one_stage, False, data) for data in hostile_headers(operator.file(), name)]
        self.run_all(commands)

    def test_mutations(self):
        print(f"seed {OPTIONS.seed}")
        random_ = random.Random(OPTIONS.seed)
        commands = []
        for operators in self.chapters.values():
            for i in range(OPTIONS.files):
                operator = operators[i % len(operators)]
                commands.append((operator.one_stage, True, mutated(operator.file(), random_)))
        self.run_all(commands)

    def test_values(self):
        commands = []
        for operator in self.operators:
            refused = {"fp32": (float("nan"), float("inf")), "int32": (-1, 7, LARGEST, -LARGEST - 1)}
            for spec in operator.inputs:
                for value in refused[spec["dtype"]]:
                    is_idle = (spec["name"], value) == ("state_indices", -1)
                    commands.append((operator.one_stage, is_idle, operator.file({spec["name"]: value})))
            floats = [spec["name"] for spec in operator.inputs if spec["dtype"] == "fp32"]
            for value in (3e38, 1e-45):  # of gates: minus that
                values = {name: -value if name in ("g", "log_decay") else value for name in floats}
                commands.append((operator.one_stage, True, operator.file({**values, "key_lengths": 0})))
        self.run_all(commands)

    def test_closed_gates_and_reflections(self):
        """The logarithm of a gate may be -inf: the state before counts as 0. beta may be above 1: along k, the state then
        changes its sign. All stages and variants are right."""
        H, L, D = 2, 130, 16
        sizes = {**SIZES, "H": H, "L": L, "Dk": D, "Dv": D, "D": D, "Dg": D}
        closed = {  # which steps of which channels
            "all": lambda t, d: True,
            "a chunk and more": lambda t, d: 50 <= t < 128,
            "some channels, and others never forget": lambda t, d: d % 3 == 0,
            "at random": lambda t, d: random_.random() < 0.05,
        }
        random_ = random.Random(1)
        commands = []
        # Forms that came later draw last: the numbers of the others stay.
        for operator in sorted(self.operators, key=lambda operator: bool({"--lengths", "--pool", "--key-heads"} & set(operator.form))):
            names = {spec["name"] for spec in operator.inputs}
            if not {"g", "log_decay", "beta"} & names:
                continue
            patterns = closed if {"g", "log_decay"} & names else {"no gates": None}
            for name, is_closed in patterns.items():
                tensors = {}
                for spec in operator.inputs:
                    if spec["optional"]:
                        continue
                    shape = [sizes[symbol] for symbol in spec["dims"]]
                    steps = shape[1] * shape[2] if len(shape) > 2 else 0
                    width = shape[3] if len(shape) == 4 else 1
                    if spec["name"] in ("g", "log_decay"):
                        gate = 0.0 if name.startswith("some") else -0.1
                        values = [
                            float("-inf") if is_closed(i // width % L, i % width) else gate * random_.random()
                            for i in range(steps * width)
                        ]
                    elif spec["name"] == "cu_seqlens":
                        values = [0, 60, 60, L]
                    elif spec["name"] == "state_indices":
                        values = [1]
                    elif spec["name"] == "beta":
                        values = [random_.uniform(0, 2) for _ in range(steps)]
                    else:
                        count = 1
                        for size in shape:
                            count *= size
                        length = 0.43 if spec["name"] == "k" else 1  # keys are about 1 long
                        values = [random_.uniform(-length, length) for _ in range(count)]
                    tensors[spec["name"]] = (spec["dtype"], shape, values)
                commands.append((operator.all_stages, file_of(tensors)))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            ends = pool.map(self.run_one, *zip(*[(i, command, True, data) for i, (command, data) in enumerate(commands)]))
            for command, _, ended in ends:
                with self.subTest(command=" ".join(str(word) for word in command)):
                    self.assertIsNotNone(ended)
                    self.assertEqual(ended.returncode, 0, ended.stdout[-1500:] + ended.stderr)
        self.assertGreater(len(commands), 40)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", nargs="?", default=ROOT / "build/emulator", type=lambda text: Path(text).resolve())
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--files", type=int, default=40)
    OPTIONS, rest = parser.parse_known_args()
    BUILD = OPTIONS.build
    unittest.main(argv=[sys.argv[0], *rest])
