#!/usr/bin/env python3
"""Runs flash-linear-attention's operators and this repository's on the same GPU and the same tensors, one beside the other.
FlashInfer's delta rules, FlashQLA's gated one and KDA of the cuDNN frontend, too, where they are installed (pip install
flashinfer-python flash-qla nvidia-cudnn-frontend). Rules with gates are timed with two kinds of them.

    tools/compare_with_fla.py [--build build/cuda] [--lengths 512,2048,16384] [--operators gla,...] [--json FILE]
    tools/compare_with_fla.py --shapes 4x8x2048,1x8x16384 --as 8.9,12.0    # B x H x L; ours without what those cards lack
    tools/compare_with_fla.py --packed 100,16384,731       # sequences of these lengths in one call, one behind the other
    tools/compare_with_fla.py --key-heads 16 -H 32 -B 1    # groups of heads that share queries and keys
    tools/compare_with_fla.py --decode 1,8,64,256 -H 32    # one token of so many sequences, their states in slots of a pool

Needs PyTorch, flash-linear-attention and safetensors, and a build of the chapters (`./tutorial setup`). For each operator
and length it draws inputs, gives them to both, checks that outputs and final states agree, and times both in the same two
measures: a call with the L2 cache flushed before it, which gives the final state, too (of theirs that is a call from
Python), and one of many calls in a CUDA graph, with nothing flushed and no final state. Of gradients, theirs are timed
without the forward pass that their call has saved tensors of, and ours from the inputs alone. A token changes states in
place, where they have a pool, and each run goes on from what the last has left. What their library refuses is skipped, with
its reason. Exit status: 0 all pairs agree, 1 one does not or a program failed, 2 bad usage or something missing.
"""

import argparse
import contextlib
from dataclasses import dataclass, field
from datetime import datetime
import importlib
import inspect
from itertools import accumulate
import json
from math import ceil, sqrt
from pathlib import Path
import sys
import tempfile
import time

sys.path.insert(0, str(Path(__file__).resolve().parent))

from compare import machine, peers, programs  # noqa: E402
from compare.store import one_line, write_atomically  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
TOLERANCE = 2e-2  # of bf16 against bf16, in the Frobenius norm
SEED = 1
SHARE_KEYS = ("gated_delta_rule", "kda")  # the operators with --key-heads
REQUIRED = "fla"  # peers from other libraries are left out where these are not installed


@dataclass(frozen=True)
class Peer:
    """One of their functions, and our stage for the same."""

    operator: str
    chapter: str
    module: str  # of theirs
    function: str
    gate: dict[str, str] = field(default_factory=dict)  # our name of an input -> their argument, beside q, k, v
    more: dict = field(default_factory=dict)  # other arguments of theirs
    form: str | None = None  # an option of ours
    stage: str = "dispatch"
    packed: bool = False  # it takes sequences one behind the other, [B L, H, D], and its states are [B, H, Dv, Dk]
    linear: bool = False  # it takes gates, not their logarithms
    gates: str | None = None  # other gates than those that the chapters draw: see Gpu.draw_gates()
    states: str | None = None  # of one token: the type of the states in the pool, fp32 or bf16

    @property
    def is_backward(self) -> bool:
        return self.form == "backward"

    @property
    def is_decode(self) -> bool:
        return self.operator == "decode"

    @property
    def rule(self) -> str:
        """What --operators calls it: for one token the rule of its recurrence."""
        return self.form.partition("+")[0].replace("-", "_") if self.is_decode else self.operator

    @property
    def package(self) -> str:
        return self.module.split(".")[0]

    @property
    def label(self) -> str:
        name = self.function if self.package == REQUIRED else f"{self.package}.{self.function}"
        more = [f"{name}={value}" for name, value in self.more.items()]
        kinds = [f"{self.gates} gates"] if self.gates else [f"{self.states} states"] if self.states else []
        return ", ".join([name, *more, *kinds])


PEERS = (
    Peer("linear_attention", "02_chunkwise", "fla.ops.linear_attn", "chunk_linear_attn", more={"normalize": False}),
    Peer("linear_attention", "02_chunkwise", "fla.ops.linear_attn", "fused_chunk_linear_attn", more={"normalize": False}),
    Peer("linear_attention", "02_chunkwise", "fla.ops.linear_attn", "chunk_linear_attn", more={"normalize": True},
         form="normalize"),
    Peer("gla", "03_gla", "fla.ops.gla", "chunk_gla", {"g": "g"}),
    Peer("gla", "03_gla", "fla.ops.gla", "fused_recurrent_gla", {"g": "gk"}),
    Peer("simple_gla", "04_fused_chunk", "fla.ops.simple_gla", "chunk_simple_gla", {"g": "g"}),
    Peer("simple_gla", "04_fused_chunk", "fla.ops.simple_gla", "fused_chunk_simple_gla", {"g": "g"}),
    Peer("simple_gla", "04_fused_chunk", "fla.ops.simple_gla", "fused_recurrent_simple_gla", {"g": "g"}),
    Peer("delta_rule", "05_deltanet_wy", "fla.ops.delta_rule", "chunk_delta_rule", {"beta": "beta"}),
    Peer("delta_rule", "05_deltanet_wy", "fla.ops.delta_rule", "fused_recurrent_delta_rule", {"beta": "beta"}),
    *(Peer("gated_delta_rule", "05_deltanet_wy", module, "chunk_gated_delta_rule", {"g": "g", "beta": "beta"}, gates=gates,
           packed=module == "flashinfer.gdn_prefill", linear=module == "flashinfer.gdn_prefill")
      for module in ("fla.ops.gated_delta_rule", "flashinfer.gdn_prefill", "flash_qla") for gates in (None, "weak")),
    *(Peer("kda", "05_deltanet_wy", module, function, {"g": "g", "beta": "beta"}, gates=gates, packed=module != "fla.ops.kda")
      for module, function in (("fla.ops.kda", "chunk_kda"), ("cudnn.linear_attention.ops", "kimi_delta_attention"))
      for gates in (None, "bounded")),
    # Without a gate: it is then 1, and their kernel leaves it out.
    Peer("delta_rule", "05_deltanet_wy", "flashinfer.gdn_prefill", "chunk_gated_delta_rule", {"beta": "beta"}, packed=True),
    Peer("linear_attention", "02_chunkwise", "fla.ops.linear_attn", "chunk_linear_attn", more={"normalize": False},
         form="backward"),
    Peer("gla", "03_gla", "fla.ops.gla", "chunk_gla", {"g": "g"}, form="backward"),
    Peer("simple_gla", "04_fused_chunk", "fla.ops.simple_gla", "chunk_simple_gla", {"g": "g"}, form="backward"),
    Peer("delta_rule", "05_deltanet_wy", "fla.ops.delta_rule", "chunk_delta_rule", {"beta": "beta"}, form="backward"),
)  # fmt: skip


# One token, with a pool of states. flash-linear-attention has none: its states lie in the order of the batch, and the new ones
# beside them.
DECODE_PEERS = tuple(
    Peer("decode", "06_scan", module, function, gate, form=f"{rule}+pool", states=states,
         stage="bf16_states" if states == "bf16" else "dispatch")
    for rule, module, function, gate, states in (
        ("delta-rule", "fla.ops.delta_rule", "fused_recurrent_delta_rule", {"beta": "beta"}, "fp32"),
        ("gated-delta-rule", "fla.ops.gated_delta_rule", "fused_recurrent_gated_delta_rule", {"g": "g", "beta": "beta"}, "fp32"),
        ("gated-delta-rule", "flashinfer.gdn_decode", "gated_delta_rule_decode_pretranspose", {}, "fp32"),
        ("gated-delta-rule", "flashinfer.gdn_decode", "gated_delta_rule_decode_pretranspose", {}, "bf16"),
        ("kda", "fla.ops.kda", "fused_recurrent_kda", {"g": "g", "beta": "beta"}, "fp32"),
        ("kda", "flashinfer.kda", "recurrent_kda", {"g": "g", "beta": "beta"}, "bf16"),
    )
)  # fmt: skip


class Missing(Exception):
    """Something that has to be installed or built, or bad usage."""


class Gpu:
    """PyTorch, as far as it is needed here. Tensors are [B, H, L, D] as in our files, unless it says otherwise."""

    def __init__(self):
        try:
            self.torch = importlib.import_module("torch")
            self.files = importlib.import_module("safetensors.torch")
        except ImportError as error:
            raise Missing(f"{error}; pip install torch safetensors flash-linear-attention") from error
        if not self.torch.cuda.is_available():
            raise Missing("PyTorch finds no GPU")
        properties = self.torch.cuda.get_device_properties(0)
        self.name = properties.name
        l2_bytes = getattr(properties, "L2_cache_size", 64 << 20)
        self.flush = self.torch.empty(2 * l2_bytes, dtype=self.torch.uint8, device="cuda")

    def versions(self) -> dict[str, str]:
        return {"PyTorch": self.torch.__version__, "CUDA of PyTorch": str(self.torch.version.cuda)}

    def draw(self, peer: Peer, problem: dict) -> dict:
        """Inputs as the chapters draw them: q, k, v in bf16, gates and beta in fp32."""
        torch = self.torch
        torch.manual_seed(SEED)
        B, H, L, Dk, Dv = (problem[symbol] for symbol in ("B", "H", "L", "Dk", "Dv"))
        Hk = problem.get("Hk", H)

        def normal(*shape):
            return torch.randn(*shape, device="cuda")

        q, k, v = normal(B, Hk, L, Dk), normal(B, Hk, L, Dk), normal(B, H, L, Dv)
        if peer.form == "normalize":  # the denominator must stay away from 0
            q, k = q.abs(), k.abs()
        tensors = {}
        if peer.operator == "gla":
            tensors["g"] = torch.nn.functional.logsigmoid(normal(B, H, L, Dk)) / 16
        elif peer.operator == "simple_gla":
            tensors["g"] = torch.nn.functional.logsigmoid(normal(B, H, L))
        elif peer.operator in ("delta_rule", "gated_delta_rule", "kda"):
            k = torch.nn.functional.normalize(k, dim=-1)
            if peer.operator != "delta_rule":
                tensors["g"] = self.draw_gates(peer, normal(B, H, L, *([Dk] if peer.operator == "kda" else [])))
            tensors["beta"] = torch.rand(B, H, L, device="cuda")
        rounded = {"q": q, "k": k, "v": v, **({"do": normal(B, H, L, Dv)} if peer.is_backward else {})}
        return {**{name: x.to(torch.bfloat16) for name, x in rounded.items()}, **tensors}

    def draw_token(self, peer: Peer, problem: dict) -> dict:
        """One token for each state but that of slot 0, in any order: FlashInfer keeps slot 0 for idle entries. Gates and beta are
        such as FlashInfer takes, too: of the gated rule the numbers in bf16 that it makes them from, a and b, of the other
        one what is already bf16."""
        torch = self.torch
        torch.manual_seed(SEED)
        B, H, Dk, Dv = (problem[symbol] for symbol in ("B", "H", "Dk", "Dv"))

        def normal(*shape):
            return torch.randn(*shape, device="cuda")

        def rounded(x):
            return x.to(torch.bfloat16)

        k = torch.nn.functional.normalize(normal(B, H, 1, Dk), dim=-1)
        tensors = {"q": rounded(normal(B, H, 1, Dk)), "k": rounded(k), "v": rounded(normal(B, H, 1, Dv))}
        b = rounded(normal(B, H, 1))
        tensors["beta"] = torch.sigmoid(b.float())
        if peer.rule == "gated_delta_rule":
            a = rounded(normal(B, H, 1))
            tensors |= {"a": a, "b": b, "g": torch.nn.functional.logsigmoid(-a.float())}
        elif peer.rule == "kda":
            tensors["g"] = rounded(torch.nn.functional.logsigmoid(normal(B, H, 1, Dk)) / 4).float()
            tensors["beta"] = rounded(tensors["beta"]).float()
        pool = normal(B + 1, H, Dk, Dv) / sqrt(Dk)  # as large as what a token adds
        tensors["state_pool"] = rounded(pool) if peer.states == "bf16" else pool
        tensors["state_indices"] = (torch.randperm(B, device="cuda") + 1).to(torch.int32)
        return tensors

    def bf16(self, x):
        return x.to(self.torch.bfloat16)

    def zeros_like(self, x):
        return self.torch.zeros_like(x)

    def zeros_of_heads(self, H: int):
        """fp32, one for each head."""
        return self.torch.zeros(H, dtype=self.torch.float32, device="cuda")

    def tokens_in_a_row(self, x):
        """One token each, [B, H, 1, ...], as [1, B, H, ...], packed."""
        return x.movedim(2, 0).contiguous()

    def tokens_apart(self, x):
        """The other way round, in memory of its own."""
        return x.movedim(0, 2).clone()

    def one_each(self, B: int):
        """Where B sequences of one token begin, and where the last one ends, in int32."""
        return self.torch.arange(B + 1, dtype=self.torch.int32, device="cuda")

    def their_pool(self, pool):
        """[slots, H, Dk, Dv] as their [slots, H, Dv, Dk], for them to change."""
        return self.transposed(pool).clone(memory_format=self.torch.contiguous_format)

    def our_pool(self, pool):
        """The other way round, as it is now."""
        return self.their_pool(pool)

    def states_in(self, pool, slots):
        """Those of the slots, in their order."""
        return pool[slots.long()]

    def pool_with(self, pool, slots, states):
        """A copy of the pool with these states in the slots."""
        changed = pool.clone()
        changed[slots.long()] = states.to(pool.dtype)
        return changed

    def copy_of(self, x):
        return x.clone()

    def draw_gates(self, peer: Peer, x):
        """Logarithms of the gates of a delta rule, from normal numbers: as its chapter draws them; "weak", which forget next to
        nothing; or "bounded", as models ship them."""
        if peer.gates == "bounded":
            return -5 * self.torch.sigmoid(x)
        logsigmoid = self.torch.nn.functional.logsigmoid
        return logsigmoid(x + 5) if peer.gates == "weak" else logsigmoid(x) / (4 if peer.operator == "kda" else 1)

    def exp(self, x):
        return x.exp()

    def save(self, tensors: dict, path: Path, metadata: dict) -> None:
        self.files.save_file({name: x.contiguous().cpu() for name, x in tensors.items()}, str(path), metadata)

    def load(self, path: Path) -> dict:
        return self.files.load_file(str(path), device="cuda")

    def heads_last(self, x):
        """[B, H, L, ...] as their [B, L, H, ...], packed."""
        return x.transpose(1, 2).contiguous()

    def heads_first(self, x):
        return x.transpose(1, 2)

    def end_to_end(self, x):
        """[B, H, L, ...] as [B L, H, ...], packed."""
        return x.transpose(1, 2).flatten(0, 1).contiguous()

    def one_by_one(self, x, B: int):
        """The other way round."""
        return x.unflatten(0, (B, -1)).transpose(1, 2)

    def sequence_starts(self, lengths: list[int]):
        """Where sequences begin that lie one behind the other, and where the last one ends."""
        return self.torch.tensor([0, *accumulate(lengths)], dtype=self.torch.int64, device="cuda")

    def transposed(self, state):
        return state.transpose(-1, -2)

    def error(self, out, reference) -> float:
        """|out - reference| / |reference| in the Frobenius norm; not finite where an output is not."""
        out, reference = out.double(), reference.double()
        return float((out - reference).norm() / reference.norm())

    def free(self) -> None:
        """Gives PyTorch's unused memory back, for another program to use."""
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()

    def elapsed_ms(self, work) -> float:
        start, stop = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop)

    def time_call(self, call) -> dict:
        """As common/timing.cpp: warm-up, the L2 cache flushed before each run, 20 to 50 runs in half a second."""
        times, begin = [], 0.0
        for run in range(-3, 50):
            if run == 0:
                begin = time.monotonic()
            if run >= 20 and time.monotonic() - begin > 0.5:
                break
            self.flush.zero_()
            ms = self.elapsed_ms(call)
            if run >= 0:
                times.append(ms)
        return {"median": median(times), "min": min(times), "max": max(times), "runs": len(times)}

    def time_graph(self, call, estimate_ms: float) -> float:
        """As common/timing.cpp: 11 replays of a graph of about 3 ms."""
        torch = self.torch
        calls = min(max(ceil(3 / max(estimate_ms, 1e-6)), 2), 1000)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # what a first call compiles or allocates cannot be captured
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(calls):
                call()
        graph.replay()
        torch.cuda.synchronize()
        return median([self.elapsed_ms(graph.replay) / calls for _ in range(11)])

    def no_gradients(self):
        return self.torch.no_grad()

    def leaf(self, x):
        """x, as an input that has a gradient."""
        return x.detach().requires_grad_()

    def gradients(self, o, inputs: list, d_o) -> tuple:
        """Those of the inputs, given that of o. What the forward pass has saved stays."""
        return self.torch.autograd.grad(o, inputs, d_o, retain_graph=True)


def median(values: list[float]) -> float:
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


# ---- Theirs --------------------------------------------------------------------------------------------------------


def versions(gpu) -> dict[str, str]:
    """What was met, as it calls itself."""
    found = {}
    for name, module in (("flash-linear-attention", "fla"), ("Triton", "triton")):
        try:
            found[name] = getattr(importlib.import_module(module), "__version__", "of unknown version")
        except ImportError as error:
            if module == "fla":
                raise Missing(f"{error}; pip install flash-linear-attention") from error
            found[name] = "none"
    for module, name in peers.LIBRARIES.items():
        with contextlib.suppress(ImportError):
            found[name] = getattr(importlib.import_module(module), "__version__", "of unknown version")
    return {**found, **gpu.versions()}


def installed(wanted: list[Peer]) -> list[Peer]:
    """Without the peers whose library, which is not the required one, is not there."""
    there = {REQUIRED: True}
    for peer in wanted:
        if peer.package in there:
            continue
        try:
            importlib.import_module(peer.package)
            there[peer.package] = True
        except ImportError as error:
            print(f"{peer.label} is left out: {one_line(str(error))}", file=sys.stderr)
            there[peer.package] = False
    return [peer for peer in wanted if there[peer.package]]


def their_inputs(gpu, peer: Peer, tensors: dict) -> dict:
    """Our tensors in their layout, under their names."""
    names = {"q": "q", "k": "k", "v": "v", **peer.gate}
    arranged = gpu.end_to_end if peer.packed else gpu.heads_last
    inputs = {theirs: arranged(tensors[ours]) for ours, theirs in names.items()}
    return {**inputs, "g": gpu.exp(inputs["g"])} if peer.linear and "g" in inputs else inputs


def their_call(gpu, peer: Peer, problem: dict, inputs: dict, scale: float):
    """Their function on these inputs: a function of whether the final state is wanted, which gives (o, final state)."""
    function = getattr(importlib.import_module(peer.module), peer.function)
    arguments = {**inputs, "scale": scale, **peer.more}
    if peer.packed:
        if problem["Dk"] != problem["Dv"]:  # they would take the one for the other
            raise ValueError("keys and values must have the same width")
    if peer.packed or "lengths" in problem:
        arguments["cu_seqlens"] = gpu.sequence_starts(problem.get("lengths", [problem["L"]] * problem["B"]))
    parameters = inspect.signature(function).parameters
    # Versions up to 0.1 took [B, H, L, D] unless told otherwise; later ones do not know the argument, or warn of it.
    head_first = parameters.get("head_first")
    if head_first is not None and head_first.default is True:
        arguments["head_first"] = False
    # Without it FlashInfer has to reckon with one sequence of all tokens, and starts more blocks.
    if peer.package == "flashinfer" and "max_seqlen" in parameters:
        arguments["max_seqlen"] = max(problem.get("lengths", [problem["L"]]))

    def call(final_state: bool):
        return function(**arguments, output_final_state=final_state)

    return call


def run_theirs(gpu, peer: Peer, problem: dict, tensors: dict, scale: float) -> tuple[dict, dict]:
    """Their outputs under our names and in our layout, and their times."""
    if peer.is_backward:
        return run_their_gradients(gpu, peer, problem, tensors, scale)
    if peer.is_decode:
        return run_their_token(gpu, peer, problem, tensors, scale)
    call = their_call(gpu, peer, problem, their_inputs(gpu, peer, tensors), scale)
    with gpu.no_gradients():
        o, final_state = call(True)[:2]
        if isinstance(final_state, tuple):  # with the normaliser: S and z, of which ours compares S
            final_state = final_state[0]
        if peer.packed:
            outputs = {"o": gpu.one_by_one(o, problem["B"]), "final_state": gpu.transposed(final_state)}
        else:
            outputs = {"o": gpu.heads_first(o), "final_state": final_state}
        times = gpu.time_call(lambda: call(True))
        times["graph"] = gpu.time_graph(lambda: call(False), times["median"])
    return outputs, times


def run_their_gradients(gpu, peer: Peer, problem: dict, tensors: dict, scale: float) -> tuple[dict, dict]:
    """Their gradients under our names and in our layout, and their times."""
    inputs = {name: gpu.leaf(x) for name, x in their_inputs(gpu, peer, tensors).items()}
    leaves = list(inputs.values())
    call, d_o = their_call(gpu, peer, problem, inputs, scale), gpu.heads_last(tensors["do"])
    o = call(False)[0]
    found = gpu.gradients(o, leaves, d_o)
    outputs = {f"d{ours}": gpu.heads_first(x) for ours, x in zip(("q", "k", "v", *peer.gate), found)}
    times = gpu.time_call(lambda: gpu.gradients(o, leaves, d_o))
    # PyTorch runs a backward pass on the stream of its forward pass, so a graph has both.
    forward = gpu.time_graph(lambda: call(False), times["median"])
    both = gpu.time_graph(lambda: gpu.gradients(call(False)[0], leaves, d_o), times["median"])
    times["graph"] = both - forward
    return outputs, times


def their_token(gpu, peer: Peer, problem: dict, tensors: dict, scale: float):
    """Their function for one token: a function that calls it, and one that makes of its result the outputs under our names and in
    our layout, in memory that further calls do not change."""
    function = getattr(importlib.import_module(peer.module), peer.function)
    slots = tensors["state_indices"]
    if peer.package == REQUIRED:
        inputs = {theirs: gpu.heads_last(tensors[ours]) for ours, theirs in {"q": "q", "k": "k", "v": "v", **peer.gate}.items()}
        inputs["initial_state"] = gpu.states_in(tensors["state_pool"], slots)

        def outputs_beside(result) -> dict:
            pool = gpu.pool_with(tensors["state_pool"], slots, result[1])
            return {"o": gpu.copy_of(gpu.heads_first(result[0])), "final_pool": pool}

        return lambda: function(**inputs, scale=scale, output_final_state=True), outputs_beside

    pool = gpu.their_pool(tensors["state_pool"])
    if peer.rule == "kda":
        # Sequences one behind the other: otherwise they gather the states and scatter them.
        inputs = {name: gpu.tokens_in_a_row(tensors[name]) for name in ("q", "k", "v")}
        inputs |= {theirs: gpu.bf16(gpu.tokens_in_a_row(tensors[ours])) for ours, theirs in peer.gate.items()}
        inputs |= {"initial_state": pool, "ssm_state_indices": slots, "cu_seqlens": gpu.one_each(problem["B"])}
        inputs |= {"output": gpu.zeros_like(inputs["v"]), "use_qk_l2norm_in_kernel": False, "output_final_state": False}
        apart = gpu.tokens_apart
    else:
        # Their gate is exp(-exp(A_log) softplus(a + dt_bias)), their beta sigmoid(b).
        inputs = {name: gpu.heads_last(tensors[name]) for name in ("q", "k", "v", "a", "b")}
        inputs |= {"A_log": gpu.zeros_of_heads(problem["H"]), "dt_bias": gpu.zeros_of_heads(problem["H"])}
        inputs |= {"state": None, "initial_state": pool, "initial_state_indices": slots}
        inputs |= {"output": gpu.zeros_like(inputs["v"]), "use_qk_l2norm": False}
        apart = lambda o: gpu.copy_of(gpu.heads_first(o))  # noqa: E731
    return lambda: function(**inputs, scale=scale), lambda result: {"o": apart(result[0]), "final_pool": gpu.our_pool(pool)}


def run_their_token(gpu, peer: Peer, problem: dict, tensors: dict, scale: float) -> tuple[dict, dict]:
    """Their outputs for one token, and their times."""
    call, outputs_of = their_token(gpu, peer, problem, tensors, scale)
    with gpu.no_gradients():
        outputs = outputs_of(call())
        times = gpu.time_call(call)
        times["graph"] = gpu.time_graph(call, times["median"])
    return outputs, times


# ---- Ours ----------------------------------------------------------------------------------------------------------


def run_ours(program: programs.Program, peer: Peer, problem: dict, card: str | None, inputs: Path, outputs: Path) -> dict:
    """What our executable says of the stage that is the peer's; it leaves its outputs in a file."""
    arguments = ["--operator", peer.operator, "--stage", peer.stage, "--input", str(inputs), "--output", str(outputs)]
    arguments += [*programs.options_of(peer.form), *(["--as", card] if card else [])]
    arguments += ["--key-heads", str(problem["Hk"])] if "Hk" in problem else []
    outcome = programs.run(program.path, arguments, 300)
    if outcome.results is None:
        raise RuntimeError(f"{program.chapter}: {outcome.reason}")
    stage = outcome.results["results"][0]["stages"][0]
    if stage["skipped"] is not None:
        raise RuntimeError(f"{program.chapter} {peer.operator} {peer.stage} is skipped: {stage['skipped']}")
    if not stage["passed"]:
        raise RuntimeError(f"{program.chapter} {peer.operator} {peer.stage} failed: {one_line(stage['failure'])}")
    return stage["time_ms"]


# ---- Side by side --------------------------------------------------------------------------------------------------


def agreement(gpu, peer: Peer, ours: dict, theirs: dict) -> float:
    """The largest of the errors of output and final state, of output and pool, or of the gradients."""
    worst = lambda errors: max(errors, key=lambda error: error if error == error else float("inf"))  # noqa: E731
    if peer.is_backward or peer.is_decode:
        return worst([gpu.error(x, ours[f"{peer.stage}.{name}"]) for name, x in theirs.items()])
    errors = [gpu.error(theirs["o"], ours[f"{peer.stage}.o"])]
    state = ours.get(f"{peer.stage}.final_state")
    if state is not None and theirs["final_state"] is not None:
        errors.append(gpu.error(theirs["final_state"], state))
    return worst(errors)


def compare(gpu, peer: Peer, program: programs.Program, problem: dict, cards: list[str | None], folder: Path):
    """One pair at one problem, ours once for each of the cards that the GPU passes for (None: for none): the rows."""
    row = {
        "operator": peer.operator, "form": peer.form, "chapter": peer.chapter, "stage": peer.stage,
        "peer": peer.label, "problem": dict(problem), "agrees": None, "error": None, "ours": None, "theirs": None,
        "call_ratio": None, "graph_ratio": None, "skipped": None, "as": None, "gates": peer.gates,
        "states": peer.states,
    }  # fmt: skip
    scale = 1 / sqrt(problem["Dk"])
    tensors = gpu.draw_token(peer, problem) if peer.is_decode else gpu.draw(peer, problem)
    try:
        outputs, row["theirs"] = run_theirs(gpu, peer, problem, tensors, scale)
    except Exception as error:  # whatever their library, Triton or CUDA refuses with
        row["skipped"] = f"{type(error).__name__}: {one_line(str(error)) or 'no message'}"
        yield row
        return
    source, result = folder / "inputs.safetensors", folder / "outputs.safetensors"
    borders = {"cu_seqlens": gpu.sequence_starts(problem["lengths"])} if "lengths" in problem else {}
    given = {name: x for name, x in tensors.items() if name not in ("a", "b")}  # those are FlashInfer's
    gpu.save(given | borders, source, {"op": peer.operator, "scale": repr(scale)})
    del tensors, given
    gpu.free()
    for card in cards:
        ours = {"as": card, "ours": run_ours(program, peer, problem, card, source, result)}
        yield row | ours | judged(row["theirs"], ours["ours"], agreement(gpu, peer, gpu.load(result), outputs))


def judged(theirs: dict, ours: dict, error: float) -> dict:
    """What a row says of both, given the difference of their outputs."""
    found = {"error": error, "agrees": error <= TOLERANCE}  # false for NaN
    if error != error or error == float("inf"):
        found["error"] = 1e300  # JSON has no NaN
    if found["agrees"]:
        found["call_ratio"] = theirs["median"] / ours["median"]
        if ours["graph"] and theirs["graph"]:
            found["graph_ratio"] = theirs["graph"] / ours["graph"]
    return found


def shapes(text: str) -> list[tuple[int, int, int]]:
    """B, H and L of each "BxHxL", the longest first."""
    found = []
    for part in text.split(","):
        sizes = part.split("x")
        if len(sizes) != 3 or not all(size.isdecimal() and int(size) > 0 for size in sizes):
            raise Missing(f"--shapes: '{part}' is not B x H x L, such as 4x8x2048")
        found.append(tuple(map(int, sizes)))
    return sorted(found, key=lambda sizes: sizes[2], reverse=True)


def numbers(option: str, text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise Missing(f"{option}: '{text}' is not a list of whole numbers above 0")
    return [int(part) for part in parts]


def chosen_problems(options) -> list[dict]:
    """The longest first: their autotuner chooses at the first length that it meets and keeps to that."""
    common = {"Dk": options.Dk, "Dv": options.Dv}
    if options.decode:
        if options.packed or options.Hk or options.shapes:
            raise Missing("--decode does not go with --packed, --key-heads or --shapes")
        batches = sorted(set(numbers("--decode", options.decode)), reverse=True)
        return [{"B": B, "H": options.H, "L": 1, **common} for B in batches]
    if options.Hk:
        if options.packed:
            raise Missing("--packed and --key-heads do not go together")
        common["Hk"] = options.Hk
    if options.packed:
        lengths = numbers("--packed", options.packed)
        return [{"B": 1, "H": options.H, "L": sum(lengths), **common, "lengths": lengths}]
    sizes = [(options.B, options.H, L) for L in sorted(set(numbers("--lengths", options.lengths)), reverse=True)]
    found = [{"B": B, "H": H, "L": L, **common} for B, H, L in (shapes(options.shapes) if options.shapes else sizes)]
    if options.Hk and (options.Hk < 1 or any(problem["H"] % options.Hk for problem in found)):
        raise Missing(f"--key-heads: {options.Hk} does not divide the heads")
    return found


def chosen_peers(text: str | None, of: tuple[Peer, ...] = PEERS) -> list[Peer]:
    if text is None:
        return list(of)
    known = dict.fromkeys(peer.rule for peer in of)
    for name in text.split(","):
        if name not in known:
            raise Missing(f"--operators: there is no '{name}'; known are {', '.join(known)}")
    return [peer for peer in of if peer.rule in text.split(",")]


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog=__doc__.split("\n\n")[-1])
    p.add_argument("--build", type=Path, default=ROOT / "build" / "cuda", help="the build folder (build/cuda)")
    p.add_argument("--lengths", default="32,128,512,1024,2048,4096,8192,16384", metavar="L,L", help="lengths (32 ... 16384)")
    p.add_argument("--operators", metavar="NAME,NAME", help="of " + ", ".join(dict.fromkeys(x.operator for x in PEERS)))
    p.add_argument("--commit", metavar="NAME", help="the commit, where git cannot tell it")
    p.add_argument("--json", type=Path, default=ROOT / "results" / "compare" / "fla.json", metavar="FILE",
                   help="the results (results/compare/fla.json)")  # fmt: skip
    p.add_argument("--shapes", metavar="BxHxL,...", help="problems, in the place of --lengths, -B and -H")
    p.add_argument("--packed", metavar="L,L", help="sequences of these lengths in one call, in the place of --lengths and -B")
    p.add_argument("--decode", metavar="B,B",
                   help="one token of so many sequences, with a pool of states, in the place of --lengths and -B: "
                        + ", ".join(dict.fromkeys(x.rule for x in DECODE_PEERS)))  # fmt: skip
    p.add_argument("--key-heads", type=int, dest="Hk", metavar="N", help="heads of q and k, of " + " and ".join(SHARE_KEYS))
    p.add_argument("--as", dest="cards", metavar="X.Y,...",
                   help="ours with what cards of these compute capabilities have (the option --as of the chapters)")  # fmt: skip
    for option, symbol, default in (("-B", "B", 4), ("-H", "H", 8), ("--key-dim", "Dk", 128), ("--value-dim", "Dv", 128)):
        p.add_argument(option, type=int, default=default, dest=symbol, metavar="N", help=f"{symbol} ({default})")
    return p


def run(options, gpu_of=Gpu) -> int:
    problems = chosen_problems(options)
    cards = options.cards.split(",") if options.cards else [None]
    wanted = chosen_peers(options.operators, DECODE_PEERS if options.decode else PEERS)
    if options.Hk:
        wanted = [peer for peer in wanted if peer.operator in SHARE_KEYS]
    chapters = {program.chapter: program for program in programs.load_all(options.build)}
    for peer in wanted:
        if peer.chapter not in chapters:
            raise Missing(f"{options.build} has no {peer.chapter}; ./tutorial setup builds it")
    gpu = gpu_of()
    met, wanted = versions(gpu), installed(wanted)
    print("met:", ", ".join(f"{program} {version}" for program, version in met.items()), f"on {gpu.name}", file=sys.stderr)
    status, rows = 0, []
    data = {
        "format": peers.FORMAT,
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "commit": options.commit or machine.commit(ROOT),
        "gpu": gpu.name,
        "versions": met,
        "comparisons": rows,
    }
    with tempfile.TemporaryDirectory(prefix="compare_with_fla_") as folder:
        for problem in problems:
            for peer in wanted:
                print(peer.label, *(f"{symbol}={problem[symbol]}" for symbol in ("B", "H", "L")), file=sys.stderr)
                try:
                    for row in compare(gpu, peer, chapters[peer.chapter], problem, cards, Path(folder)):
                        rows.append(row)
                        if row["skipped"]:
                            print(f"  skipped: {row['skipped']}", file=sys.stderr)
                        elif not row["agrees"]:
                            print(f"  differs by {row['error']:.2g}", file=sys.stderr)
                            status = 1
                except RuntimeError as error:  # ours
                    print(f"  {one_line(str(error))}", file=sys.stderr)
                    status = 1
                write_atomically(options.json, json.dumps(data, indent=1) + "\n")
    print(peers.report(data))
    return status


def main(arguments: list[str] | None = None) -> int:
    try:
        return run(parser().parse_args(arguments))
    except (Missing, programs.ProgramError) as error:
        print(f"compare_with_fla.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
