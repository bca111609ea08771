#!/usr/bin/env python3
"""Makes the golden files anew with the libraries that made them: PyTorch, flash-linear-attention and fast-transformers.

    tools/make_golden.py --check              # recomputes outputs and gradients of golden/ from its inputs, and compares
    tools/make_golden.py OUTPUT               # writes all files: inputs of golden/, outputs and gradients recomputed
    tools/make_golden.py OUTPUT --seed 1      # the same shapes with inputs of one's own
    tools/make_golden.py --check gla gla_d64  # some of them

It needs NumPy and PyTorch, and for most files one of the libraries; files whose library is missing are named and left out.
The seeds of the inputs in golden/ were not kept: these inputs are the reference, and --check says that the outputs belong
to them. No part of CI; a test compares what is declared here with the headers of golden/.

Exit status: 0 all is well, 1 a file differs, 2 nothing could be made.
"""

import argparse
from dataclasses import dataclass, field
import importlib
import json
from pathlib import Path
import struct
import sys
import zlib

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
TOLERANCE = 2e-5  # relative, in the Frobenius norm: fp32 on another machine and another version of PyTorch

# B, H, L, Dk, Dv of the files of each operator, by what their names end in.
SIZES = {"": (2, 1, 70, 40, 24), "_d64": (2, 1, 96, 64, 64), "_len1": (1, 1, 1, 16, 16), "_strong": (1, 1, 80, 32, 16)}


@dataclass
class File:
    """A golden file: its tensors, its metadata, and how it is made."""

    name: str
    library: str
    make: str  # the function make_... below
    metadata: dict[str, str]
    inputs: dict[str, tuple]
    outputs: dict[str, tuple]
    integers: set[str] = field(default_factory=set)  # int32, the others fp32


# ---- What there is ----


def qkv(B, H, L, Dk, Dv, keys=None) -> dict[str, tuple]:
    keys = L if keys is None else keys
    return {"q": (B, H, L, Dk), "k": (B, H, keys, Dk), "v": (B, H, keys, Dv)}


def gradients(inputs: dict[str, tuple], *names: str) -> dict[str, tuple]:
    return {f"d{name}": inputs[name] for name in names}


def fast_transformers_files() -> list[File]:
    files = []
    for suffix, (B, H, L, Dk, Dv) in SIZES.items():
        inputs = {**qkv(B, H, L, Dk, Dv), "do": (B, H, L, Dv)}
        some = {} if suffix == "_len1" else gradients(inputs, "q", "k", "v")
        outputs = {"o": (B, H, L, Dv), **some}
        source = "fast-transformers 0.4.0 causal_dot_product, CPU float32"
        metadata = {"op": "causal_dot_product", "scale": "1.0", "source": source}
        files.append(File(f"causal_dot_product{suffix}", "fast_transformers", "dot_product", metadata, inputs, outputs))
        for kind, layer in (("causal", "CausalLinearAttention"), ("bidirectional", "LinearAttention")):
            with_lengths = {**inputs, "key_lengths": (B,)}
            files.append(layer_file(f"{kind}{suffix}", layer, with_lengths, outputs))
    tiny = {**qkv(2, 1, 40, 24, 16), "key_lengths": (2,)}
    note = "; features so small that eps decides"
    files.append(layer_file("causal_tiny", "CausalLinearAttention", tiny, {"o": (2, 1, 40, 16)}, note))
    cross = {**qkv(2, 1, 40, 24, 16, keys=55), "key_lengths": (2,)}
    note = "; 55 keys for 40 queries"
    files.append(layer_file("bidirectional_cross", "LinearAttention", cross, {"o": (2, 1, 40, 16)}, note))
    return files


def layer_file(name: str, layer: str, inputs: dict, outputs: dict, note: str = "") -> File:
    metadata = {
        "op": "linear_attention",
        "causal": "1" if layer.startswith("Causal") else "0",
        "eps": "1e-06",
        "feature_map": "elu+1",
        "source": f"fast-transformers 0.4.0 {layer}, CPU float32{note}",
    }
    return File(f"linear_attention_{name}", "fast_transformers", "layer", metadata, inputs, outputs, {"key_lengths"})


# By operator: the function of flash-linear-attention, the inputs that it has beside q, k and v, and more metadata.
RECURRENCES = {
    "linear_attention": ("linear_attn", "naive_recurrent_linear_attn", None, {}),
    "gla": ("gla", "naive_recurrent_gla", "g", {"gate": "natural log, per key channel"}),
    "simple_gla": ("simple_gla", "naive_recurrent_simple_gla", "g", {"gate": "natural log, per head"}),
    "delta_rule": ("delta_rule", "delta_rule_recurrence", "beta", {}),
    "kda": ("kda", "naive_recurrent_kda", "g beta", {"gate": "natural log, per key channel"}),
    "gated_delta_rule": (
        "gated_delta_rule", "naive_recurrent_gated_delta_rule", "beta g", {"gate": "natural log, per head"}
    ),
}


def fla_files() -> list[File]:
    files = []
    for suffix, (B, H, L, Dk, Dv) in SIZES.items():
        scale = {"scale": repr(1 / Dk**0.5)}
        for op, (_, function, own, more) in RECURRENCES.items():
            inputs = {**qkv(B, H, L, Dk, Dv), "initial_state": (B, H, Dk, Dv)}
            for name in (own or "").split():
                inputs[name] = (B, H, L, Dk) if name == "g" and op in ("gla", "kda") else (B, H, L)
            some = {} if suffix == "_len1" else gradients(inputs, *inputs)
            outputs = {"o": (B, H, L, Dv), "final_state": (B, H, Dk, Dv), **some}
            inputs = {**inputs, "do": (B, H, L, Dv), "dfinal_state": (B, H, Dk, Dv)}
            version = "0.6.0" if op in ("gated_delta_rule", "kda") else "0.5.2"
            source = {"source": f"flash-linear-attention {version} {function}, float32"}
            name = f"{op}_fla{suffix}" if op == "linear_attention" else op + suffix
            files.append(File(name, "fla", "recurrence", {"op": op, **scale, **source, **more}, inputs, outputs))
        source = "flash-linear-attention 0.5.2 naive_retention, float32"
        metadata = {"op": "retention", **scale, "source": source, "decay": "gamma_h = 1 - 2^(-5-h)"}
        files.append(File(f"retention{suffix}", "fla", "retention", metadata, qkv(B, H, L, Dk, Dv), {"o": (B, H, L, Dv)}))
    d_model, rank, keys, values = 96, 16, 48, 48
    layer = {
        "x": (2, 50, d_model),
        "q_proj.weight": (48, d_model),
        "k_proj.weight": (48, d_model),
        "v_proj.weight": (96, d_model),
        "g_proj.weight": (96, d_model),
        "gk_proj.0.weight": (rank, d_model),
        "gk_proj.1.weight": (keys, rank),
        "gk_proj.1.bias": (keys,),
        "g_norm_swish_gate.weight": (values,),
        "o_proj.weight": (d_model, 96),
    }
    metadata = {
        "op": "gla_layer",
        "source": "flash-linear-attention 0.5.2 GatedLinearAttention (fused_recurrent), float32, H200",
        "hidden_size": str(d_model),
        "num_heads": "2",
        "expand_k": "0.5",
        "expand_v": "1.0",
        "norm_eps": "1e-05",
        "gate_logit_normalizer": "16",
    }
    files.append(File("gla_layer", "fla", "gla_layer", metadata, layer, {"y": (2, 50, d_model)}))
    return files


def torch_files() -> list[File]:
    files = []
    for suffix, (B, H, L, *_) in SIZES.items():
        inputs = {"x": (B, H, L, 8, 8), "log_decay": (B, H, L)}
        some = {} if suffix == "_len1" else gradients(inputs, "x", "log_decay")
        outputs = {"y": inputs["x"], **some}
        metadata = {"op": "monoid_scan", "source": "PyTorch sequential recurrence and autograd, float32"}
        inputs = {**inputs, "dy": inputs["x"]}
        files.append(File(f"monoid_scan{suffix}", "torch", "scan", metadata, inputs, outputs))
    for suffix, (B, L, D) in {"": (2, 70, 24), "_d64": (2, 96, 64), "_len1": (1, 1, 16), "_strong": (1, 80, 16)}.items():
        layout = "u, y: [B, L, D]; kernel: [L]"
        metadata = {"op": "causal_convolution", "source": "torch.fft, float32", "layout": layout}
        inputs = {"u": (B, L, D), "kernel": (L,)}
        files.append(File(f"causal_convolution{suffix}", "torch", "convolution", metadata, inputs, {"y": (B, L, D)}))
    return files


def files() -> dict[str, File]:
    """All golden files by name."""
    return {file.name: file for file in fast_transformers_files() + fla_files() + torch_files()}


# ---- safetensors ----


def header(path: Path) -> tuple[dict[str, tuple[str, tuple]], dict[str, str]]:
    """Types and shapes of a file's tensors, and its metadata."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        entries = json.loads(file.read(size))
    metadata = entries.pop("__metadata__", {})
    return {name: (entry["dtype"], tuple(entry["shape"])) for name, entry in entries.items()}, metadata


def read(path: Path) -> dict:
    """A file's tensors as NumPy arrays."""
    import numpy

    data = path.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    entries = json.loads(data[8:start])
    entries.pop("__metadata__", None)
    types = {"F32": "<f4", "I32": "<i4"}
    return {
        name: numpy.frombuffer(data[start:][slice(*entry["data_offsets"])], types[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in entries.items()
    }


def write(path: Path, tensors: dict, metadata: dict[str, str]) -> None:
    """Tensors, of fp32 or int32, as a file."""
    entries, parts, at = {"__metadata__": metadata}, [], 0
    for name in sorted(tensors):
        array = tensors[name]
        part = array.astype("<i4" if array.dtype.kind == "i" else "<f4").tobytes()
        dtype = "I32" if array.dtype.kind == "i" else "F32"
        entries[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + len(part)]}
        parts.append(part)
        at += len(part)
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


# ---- Inputs of one's own ----


def draw(file: File, seed: int) -> dict:
    """Inputs for a file, the same for the same seed and version of PyTorch, and of the sizes that golden/ has."""
    import torch

    generator = torch.Generator().manual_seed(seed + zlib.crc32(file.name.encode()))
    normal = lambda shape: torch.randn(shape, generator=generator)  # noqa: E731
    strong = file.name.endswith("_strong")
    result = {}
    for name, shape in file.inputs.items():
        x = normal(shape)
        if name == "key_lengths":
            keys = file.inputs["k"][2]
            x = torch.randint(1, keys + 1, shape, generator=generator, dtype=torch.int32)
            x[0] = keys if shape[0] > 1 else x[0]
        elif name in ("g", "log_decay"):
            x = torch.nn.functional.logsigmoid(5 * x if strong else x)
            x = x / {"gla": 16, "kda": 4}.get(file.metadata["op"], 1) if not strong else x
        elif name == "beta":
            x = 0.95 + 0.05 * torch.sigmoid(x) if strong else torch.sigmoid(x)
        elif name == "kernel":
            x = x * torch.exp(-torch.arange(shape[0]) / 10)
        elif name == "k" and file.metadata["op"] in ("delta_rule", "gated_delta_rule", "kda"):
            x = torch.nn.functional.normalize(x, dim=-1)
        elif name in ("q", "k") and file.name.endswith("_tiny"):
            x = x - 10
        elif name.endswith("weight") and len(shape) == 2:
            x = x / shape[1] ** 0.5
        result[name] = x
    return {name: x.numpy() for name, x in result.items()}


# ---- The libraries ----


def with_gradients(function, inputs: dict, wanted: dict, upstream: dict) -> dict:
    """Outputs of function(**inputs), and the gradients in `wanted`, from `upstream` by an output's name."""
    import torch

    leaves = {name: x.clone().requires_grad_(f"d{name}" in wanted) for name, x in inputs.items()}
    outputs = function(**leaves)
    if any(leaf.requires_grad for leaf in leaves.values()):
        torch.autograd.backward([outputs[name] for name in upstream], list(upstream.values()))
    found = {f"d{name}": leaf.grad for name, leaf in leaves.items() if leaf.requires_grad}
    return {**{name: x.detach() for name, x in outputs.items()}, **found}


def swap(x):
    """[B, H, L, ...] to [B, L, H, ...], which is the libraries' order, and back."""
    return x.transpose(1, 2)


def make_dot_product(file: File, t: dict) -> dict:
    from fast_transformers.causal_product import causal_dot_product

    return with_gradients(
        lambda q, k, v: {"o": causal_dot_product(q, k, v)}, {n: t[n] for n in ("q", "k", "v")}, file.outputs, {"o": t["do"]}
    )


def make_layer(file: File, t: dict) -> dict:
    from fast_transformers import masking
    from fast_transformers.attention.causal_linear_attention import CausalLinearAttention
    from fast_transformers.attention.linear_attention import LinearAttention

    causal = file.metadata["causal"] == "1"
    layer = (CausalLinearAttention if causal else LinearAttention)(t["q"].shape[-1], eps=float(file.metadata["eps"]))
    queries, keys = t["q"].shape[2], t["k"].shape[2]
    mask = masking.TriangularCausalMask(queries) if causal else masking.FullMask(queries, keys)
    key_mask = masking.LengthMask(t["key_lengths"].long(), max_len=keys)
    query_mask = masking.LengthMask(t["q"].new_full((t["q"].shape[0],), queries).long(), max_len=queries)

    def attention(q, k, v):
        return {"o": swap(layer(swap(q), swap(k), swap(v), mask, query_mask, key_mask))}

    upstream = {"o": t["do"]} if "do" in t else {}
    return with_gradients(attention, {n: t[n] for n in ("q", "k", "v")}, file.outputs, upstream)


def naive(folder: str, function: str):
    """A reference function of flash-linear-attention."""
    return getattr(importlib.import_module(f"fla.ops.{folder}.naive"), function)


def make_recurrence(file: File, t: dict) -> dict:
    folder, name, own, _ = RECURRENCES[file.metadata["op"]]
    function = naive(folder, name)
    turn = (lambda x: x) if folder == "delta_rule" else swap  # delta_rule_recurrence takes [B, H, L, D]

    def run(q, k, v, initial_state, **more):
        extra = [turn(more[name]) for name in (own or "").split()]
        o, state = function(
            turn(q), turn(k), turn(v), *extra, initial_state=initial_state, output_final_state=True
        )
        return {"o": turn(o), "final_state": state}

    inputs = {n: x for n, x in t.items() if n not in ("do", "dfinal_state")}
    return with_gradients(run, inputs, file.outputs, {"o": t["do"], "final_state": t["dfinal_state"]})


def make_retention(file: File, t: dict) -> dict:
    return {"o": naive("retention", "naive_retention")(t["q"], t["k"], t["v"])}


def make_gla_layer(file: File, t: dict) -> dict:
    import torch
    from fla.layers import GatedLinearAttention

    m = file.metadata
    layer = GatedLinearAttention(
        mode="fused_recurrent", hidden_size=int(m["hidden_size"]), num_heads=int(m["num_heads"]),
        expand_k=float(m["expand_k"]), expand_v=float(m["expand_v"]), norm_eps=float(m["norm_eps"]),
        gate_logit_normalizer=int(m["gate_logit_normalizer"]),
    )  # fmt: skip
    layer.load_state_dict({name: x for name, x in t.items() if name != "x"})
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return {"y": layer.to(device)(t["x"].to(device))[0].detach().cpu()}


def make_scan(file: File, t: dict) -> dict:
    def run(x, log_decay):
        import torch

        y, state = [], torch.zeros_like(x[:, :, 0])
        for i in range(x.shape[2]):
            state = torch.exp(log_decay[:, :, i, None, None]) * state + x[:, :, i]
            y.append(state)
        return {"y": torch.stack(y, 2)}

    return with_gradients(run, {n: t[n] for n in ("x", "log_decay")}, file.outputs, {"y": t["dy"]})


def make_convolution(file: File, t: dict) -> dict:
    import torch

    L = t["kernel"].shape[0]
    spectrum = torch.fft.rfft(t["u"], n=2 * L, dim=1) * torch.fft.rfft(t["kernel"], n=2 * L)[:, None]
    return {"y": torch.fft.irfft(spectrum, n=2 * L, dim=1)[:, :L]}


def make(file: File, inputs: dict) -> dict:
    """A file's outputs and gradients from its inputs, as NumPy arrays."""
    import torch

    tensors = {name: torch.from_numpy(x.copy()) for name, x in inputs.items()}
    made = globals()[f"make_{file.make}"](file, tensors)
    return {name: made[name].numpy() for name in file.outputs}


# ---- The command line ----


def errors(file: File, found: dict, known: dict) -> dict[str, float]:
    """By tensor: the relative error in the Frobenius norm."""
    import numpy

    result = {}
    for name in file.outputs:
        norm = numpy.linalg.norm(known[name].astype("f8").ravel())
        result[name] = float(numpy.linalg.norm((found[name].astype("f8") - known[name]).ravel()) / (norm or 1))
    return result


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--check", action="store_true", help="compare with golden/ and write nothing")
    p.add_argument("--seed", type=int, metavar="N", help="inputs of one's own")
    p.add_argument("names", nargs="*", metavar="OUTPUT | NAME", help="the folder to write to, unless --check; files (all)")
    return p


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_intermixed_args(arguments)
    names = options.names
    folder = None
    if not options.check:
        if not names:
            parser().error("name the folder to write to, or --check")
        folder, names = Path(names[0]), names[1:]
        if folder.resolve() == GOLDEN:
            parser().error("golden/ is what others check against: write elsewhere, compare, then copy")
        folder.mkdir(parents=True, exist_ok=True)
    elif options.seed is not None:
        parser().error("--check compares with golden/, whose inputs are what they are: leave --seed out")
    known = files()
    if unknown := [name for name in names if name not in known]:
        parser().error(f"there is no golden file '{unknown[0]}'")
    made, differ = 0, False
    for file in [known[name] for name in names or known]:
        committed = read(GOLDEN / f"{file.name}.safetensors") if options.seed is None else None
        try:
            inputs = draw(file, options.seed) if committed is None else {name: committed[name] for name in file.inputs}
            outputs = make(file, inputs)
        except ImportError as error:
            print(f"{file.name}: left out, {error}")
            continue
        made += 1
        if options.check:
            name, worst = max(errors(file, outputs, committed).items(), key=lambda item: item[1])
            bad = not worst <= TOLERANCE
            differ = differ or bad
            print(f"{file.name}: {'DIFFERS' if bad else 'agrees'}, {name} by {worst:.1e}")
        else:
            more = {} if options.seed is None else {"seed": str(options.seed)}
            write(folder / f"{file.name}.safetensors", {**inputs, **outputs}, {**file.metadata, **more})
            print(folder / f"{file.name}.safetensors")
    return 2 if not made else int(differ)


if __name__ == "__main__":
    sys.exit(main())
