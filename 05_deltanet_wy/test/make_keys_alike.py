#!/usr/bin/env python3
"""Writes what barriers_test.cpp runs gradients from: one head, widths of 64. keys_alike.safetensors has 390 positions, and
all chunks but the fourth have keys of a cosine of about 0.95 and are marked (05_deltanet_wy/chunk/alike_keys.cuh).
keys_alike_rows.safetensors has a gate per row and 520 positions, of which all chunks are marked but the second. In the
third some gates are so strong that it has no anchor."""

import json
from pathlib import Path
import struct

import numpy as np

D = 64


def bf16(x):
    """Bits of the nearest numbers."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write(file, L, fresh, has_rows) -> None:
    random = np.random.default_rng(1)
    normal = lambda: random.normal(size=(1, 1, L, D))  # noqa: E731
    own, common = normal(), normal()[:, :, :1]
    own, common = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (own, common))
    is_fresh = (np.arange(L) // 64 == fresh)[:, None]
    k = np.where(is_fresh, own, np.sqrt(0.95) * common + np.sqrt(0.05) * own)
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    g = np.full((1, 1, L), -0.01, np.float32)
    if has_rows:
        g = np.repeat(g[..., None], D, axis=-1)
        g[:, :, 128:192, ::16] = -3
    tensors = {
        "q": bf16(normal()), "k": bf16(k), "v": bf16(normal()), "do": bf16(normal()),
        "beta": np.full((1, 1, L), 0.98, np.float32), "g": g,
    }  # fmt: skip
    header, offset = {}, 0
    for name, x in tensors.items():
        dtype = "BF16" if x.dtype == np.uint16 else "F32"
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [offset, offset + x.nbytes]}
        offset += x.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = Path(__file__).with_name(file)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(x.tobytes() for x in tensors.values()))


def main() -> None:
    write("keys_alike.safetensors", 390, 3, False)
    write("keys_alike_rows.safetensors", 520, 1, True)


if __name__ == "__main__":
    main()
