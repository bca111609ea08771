#!/usr/bin/env python3
"""What tools/make_golden.py declares is what golden/ holds. Needs neither PyTorch nor the libraries."""

import json
from pathlib import Path
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import make_golden  # noqa: E402


class Declared(unittest.TestCase):
    def setUp(self):
        self.files = make_golden.files()

    def test_every_file_is_declared_and_there(self):
        there = {path.stem for path in make_golden.GOLDEN.glob("*.safetensors")}
        self.assertEqual(set(self.files), there)

    def test_shapes_and_types(self):
        for name, file in self.files.items():
            with self.subTest(name):
                tensors, _ = make_golden.header(make_golden.GOLDEN / f"{name}.safetensors")
                declared = {
                    tensor: ("I32" if tensor in file.integers else "F32", tuple(shape))
                    for tensor, shape in {**file.inputs, **file.outputs}.items()
                }
                self.assertEqual(declared, tensors)

    def test_metadata(self):
        for name, file in self.files.items():
            with self.subTest(name):
                _, metadata = make_golden.header(make_golden.GOLDEN / f"{name}.safetensors")
                self.assertEqual({k: number(v) for k, v in file.metadata.items()}, {k: number(v) for k, v in metadata.items()})

    def test_each_has_a_function_that_makes_it(self):
        for file in self.files.values():
            self.assertTrue(callable(getattr(make_golden, f"make_{file.make}")), file.name)

    def test_a_header_that_says_something_else_is_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.safetensors"
            text = json.dumps({"__metadata__": {"a": "b"}, "q": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
            path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
            self.assertEqual(make_golden.header(path), ({"q": ("F32", (2,))}, {"a": "b"}))


def number(text: str):
    """Numbers in metadata as numbers: their last digit may be printed in two ways."""
    try:
        return round(float(text), 12)
    except ValueError:
        return text


if __name__ == "__main__":
    unittest.main()
