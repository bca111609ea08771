#!/usr/bin/env python3
"""tools/compare_with_fla.py with a library, a GPU and chapters that are not there: what goes where, and what is refused."""

import contextlib
import io
import json
from math import exp, log
from pathlib import Path
import shutil
import sys
import tempfile
import types
import unittest
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

import compare_with_fla as tool  # noqa: E402
from compare import peers, programs  # noqa: E402

# A chapter that "computes": its outputs are a text that names its inputs.
CHAPTER = """#!{python}
import json, sys
a = sys.argv[1:]
if "--list" in a:
    print(json.dumps({{"chapter": "{name}", "title": "", "operators": []}}))
    sys.exit()
value = lambda name: a[a.index(name) + 1]
inputs = json.load(open(value("--input")))
print(json.dumps([a, inputs]), file=open(sys.argv[0] + ".calls", "a"))
stage = value("--stage")
d = {{stage + ".d" + name: "d" + x for name, x in inputs.items() if name in ("q", "k", "v", "g", "beta")}}
state = ".final_pool" if "--pool" in a else ".final_state"
json.dump(d if "--backward" in a else {{stage + ".o": "o of " + inputs["op"], stage + state: "S of " + inputs["op"]}}, open(value("--output"), "w"))
failure = None if {passed} else "o differs"
times = {{"median": 0.5, "min": 0.4, "max": 0.9, "runs": 50, "graph": 0.25}}
print(json.dumps({{"chapter": "{name}", "results": [{{"operator": value("--operator"), "stages": [
    {{"name": stage, "skipped": None, "passed": {passed}, "failure": failure, "time_ms": times}}]}}]}}))
"""


class FakeGpu:
    """Tensors are texts: "q" for [B, H, L, D], "q'" for [B, L, H, D], "q|" for [B L, H, D], "q-" for one token each in
    [1, B, H, D]. A state ends in "^T" if it is transposed, and a pool of theirs is a list of one text, which they change."""

    name = "NVIDIA H200"
    errors = {}  # by text, of an output

    def versions(self):
        return {"PyTorch": "9.9"}

    def draw(self, peer, problem):
        return {name: name for name in ("q", "k", "v", *(["do"] if peer.is_backward else []), *peer.gate)}

    def draw_token(self, peer, problem):
        assert problem["L"] == 1
        gates = {"delta_rule": (), "gated_delta_rule": ("g", "a", "b"), "kda": ("g",)}[peer.rule]
        names = ("q", "k", "v", "beta", *gates, "state_pool", "state_indices")
        return {name: f"{name} of {peer.states}" if name == "state_pool" else name for name in names}

    def bf16(self, x):
        return f"bf16({x})"

    def zeros_like(self, x):
        return f"zeros of {x}"

    def zeros_of_heads(self, H):
        return [0] * H

    def tokens_in_a_row(self, x):
        return x + "-"

    def tokens_apart(self, x):
        assert x.endswith("-")
        return x.removesuffix("-")

    def one_each(self, B):
        return list(range(B + 1))

    def their_pool(self, pool):
        return [pool + "^T"]

    def our_pool(self, pool):
        assert pool[0].endswith("^T")
        return pool[0].removesuffix("^T")

    def states_in(self, pool, slots):
        return f"{pool}[{slots}]"

    def pool_with(self, pool, slots, states):
        assert (pool, slots) == ("state_pool of fp32", "state_indices")
        return states

    def copy_of(self, x):
        return x

    def save(self, tensors, path, metadata):
        path.write_text(json.dumps({**tensors, **metadata}), encoding="utf-8")

    def load(self, path):
        return json.loads(path.read_text(encoding="utf-8"))

    def heads_last(self, x):
        return x + "'"

    def heads_first(self, x):
        return x.removesuffix("'")

    def end_to_end(self, x):
        return x + "|"

    def one_by_one(self, x, B):
        assert B in (1, 4) and x.endswith("|")
        return x.removesuffix("|")

    def sequence_starts(self, lengths):
        return lengths

    def exp(self, x):
        return f"exp({x})"

    def transposed(self, state):
        return state.removesuffix("^T") if state.endswith("^T") else state + "^T"

    def error(self, out, reference):
        return self.errors.get(out, 0.0 if out == reference else 1.0)

    def free(self):
        pass

    def time_call(self, call):
        call()
        return {"median": 1.0, "min": 0.9, "max": 2.0, "runs": 20}

    def time_graph(self, call, estimate_ms):
        assert estimate_ms == 1.0
        self.has_gradients = False
        call()
        return 0.8 if self.has_gradients else 0.4

    def leaf(self, x):
        return x + "!"

    def gradients(self, o, inputs, d_o):
        assert o.startswith("o of ") and d_o == "do'" and all(x.endswith("'!") for x in inputs)
        self.has_gradients = True
        return tuple(f"d{x[:-1]}" for x in inputs)

    def no_gradients(self):
        return contextlib.nullcontext()


class CompareWithFla(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="compare_with_fla_test_"))
        self.addCleanup(shutil.rmtree, self.folder)
        for chapter in {peer.chapter for peer in tool.PEERS + tool.DECODE_PEERS}:
            self.chapter(chapter, True)
        self.calls = []
        versions = {"fla": "0.5.2", "triton": "3.6.0", "flashinfer": "0.6.3", "flash_qla": "0.1.3", "cudnn": "1.32.0"}
        modules = {name: types.SimpleNamespace(__version__=version) for name, version in versions.items()}
        for peer in tool.PEERS:
            module = modules.setdefault(peer.module, types.ModuleType(peer.module))
            setattr(module, peer.function, self.theirs(peer))
        self.tokens = []
        for peer in tool.DECODE_PEERS:
            module = modules.setdefault(peer.module, types.ModuleType(peer.module))
            setattr(module, peer.function, self.their_token(peer, getattr(module, peer.function, None)))
        self.modules = modules
        patch = mock.patch.dict(sys.modules, modules)
        patch.start()
        self.addCleanup(patch.stop)

    def chapter(self, name, passed):
        path = self.folder / "build" / name / name[3:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CHAPTER.format(python=sys.executable, name=name, passed=passed), encoding="utf-8")
        path.chmod(0o755)

    def theirs(self, peer):
        # These have no defaults here: these are the arguments that they must get. FlashInfer has one function with gates and
        # without.
        def packed(q, k, v, *, beta, scale, cu_seqlens, output_final_state, g=None):
            given = {name: x for name, x in (("g", g), ("beta", beta)) if x is not None}
            self.calls.append((peer.function, (q, k, v), given, scale, cu_seqlens, output_final_state))
            operator = peer.operator if peer.operator == "kda" else "gated_delta_rule" if g else "delta_rule"
            o = f"o of {operator}|"
            return (o, f"S of {operator}^T") if output_final_state else o

        def function(q, k, v, g=None, gk=None, beta=None, scale=None, normalize=None, output_final_state=False, cu_seqlens=None):
            given = {name: x for name, x in (("g", g), ("gk", gk), ("beta", beta), ("cu_seqlens", cu_seqlens)) if x is not None}
            self.calls.append((peer.function, (q, k, v), given, scale, normalize, output_final_state))
            return f"o of {peer.operator}'", f"S of {peer.operator}" if output_final_state else None

        return packed if peer.packed else function

    def their_token(self, peer, without_state):
        def beside(q, k, v, *, beta, scale, output_final_state, initial_state=None, g=None, **more):
            if initial_state is None:  # PEERS has the same function, for a whole sequence
                return without_state(q, k, v, beta=beta, scale=scale, output_final_state=output_final_state, **more)
            assert output_final_state and not more
            self.tokens.append((peer.function, (q, k, v, beta, g), scale, initial_state))
            return "o of decode'", "S of decode"

        def gated(q, k, v, state, A_log, a, dt_bias, b, *, scale, output, use_qk_l2norm, initial_state, initial_state_indices):
            assert state is None and not use_qk_l2norm and A_log == dt_bias == [0] * 32 and output == "zeros of v'"
            self.tokens.append((peer.function, (q, k, v, a, b, initial_state_indices), scale, initial_state[0]))
            initial_state[0] = "S of decode^T"
            return "o of decode'", initial_state

        def kda(q, k, v, g, beta, *, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, cu_seqlens,
                ssm_state_indices, output):  # fmt: skip
            assert not use_qk_l2norm_in_kernel and not output_final_state and output == "zeros of v-"
            self.tokens.append((peer.function, (q, k, v, g, beta, ssm_state_indices, cu_seqlens), scale, initial_state[0]))
            initial_state[0] = "S of decode^T"
            return "o of decode-", None

        return beside if peer.package == tool.REQUIRED else kda if peer.rule == "kda" else gated

    def called(self):
        """What the chapters were called with: the options, and what their input file holds."""
        return [json.loads(line) for path in self.folder.rglob("*.calls") for line in path.read_text().splitlines()]

    def run_tool(self, *arguments, gpu=FakeGpu):
        text, errors = io.StringIO(), io.StringIO()
        path = self.folder / "fla.json"
        options = tool.parser().parse_args(
            ["--build", str(self.folder / "build"), "--json", str(path), "--commit", "abc", "--lengths", "64", *arguments]
        )
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(errors):
            status = tool.run(options, gpu)
        return status, text.getvalue(), errors.getvalue(), peers.load(path) if path.exists() else None

    def test_all_pairs_agree_and_have_ratios(self):
        status, text, errors, data = self.run_tool()
        self.assertEqual(status, 0, errors)
        self.assertEqual(len(data["comparisons"]), len(tool.PEERS))
        versions = {"flash-linear-attention": "0.5.2", "Triton": "3.6.0", "FlashInfer": "0.6.3", "FlashQLA": "0.1.3"}
        self.assertEqual(data["versions"], {**versions, "cuDNN frontend": "1.32.0", "PyTorch": "9.9"})
        self.assertIn("met: flash-linear-attention 0.5.2, Triton 3.6.0, FlashInfer 0.6.3, FlashQLA 0.1.3, cuDNN", errors)
        for row in data["comparisons"]:
            self.assertEqual((row["agrees"], row["call_ratio"], row["graph_ratio"]), (True, 2.0, 1.6), row)
        self.assertIn("| 03 `gla` `dispatch` | `chunk_gla` | 64 | 0.250 | 0.400 | 1.60 | 0.500 | 1.00 | 2.00 |", text)
        self.assertEqual(peers.ratios(data)["gla", 64], 1.6)

    def test_ours_run_with_what_other_cards_have(self):
        status, text, errors, data = self.run_tool("--shapes", "2x3x64,1x1x32", "--as", "8.9,12.0", "--operators", "gla")
        self.assertEqual(status, 0, errors)
        rows = [row for row in data["comparisons"] if row["form"] is None and row["peer"] == "chunk_gla"]
        shapes = [(row["problem"]["B"], row["problem"]["H"], row["problem"]["L"], row["as"]) for row in rows]
        self.assertEqual(shapes, [(2, 3, 64, "8.9"), (2, 3, 64, "12.0"), (1, 1, 32, "8.9"), (1, 1, 32, "12.0")])
        self.assertIn("| theirs over ours, in a graph, at L = | 1x1x32 | 2x3x64 |", text)
        self.assertIn("| 03 `gla --as 12.0` | 1.60 | 1.60 |", text)
        self.assertEqual(peers.fastest(data, "gla"), {}, "such times are no times of the GPU's")
        with self.assertRaisesRegex(tool.Missing, "--shapes: '2x3' is not B x H x L"):
            self.run_tool("--shapes", "2x3")

    def test_their_arguments_are_in_their_layout_and_under_their_names(self):
        self.run_tool("--key-dim", "64")
        calls = [call for call in self.calls if call[1][0] == "q'"]  # those for gradients come below
        given = {(name, normalize): (qkv, gate, scale) for name, qkv, gate, scale, normalize, _ in calls}
        self.assertEqual(given["chunk_simple_gla", None], (("q'", "k'", "v'"), {"g": "g'"}, 0.125))
        self.assertEqual(given["fused_recurrent_gla", None][1], {"gk": "g'"})
        self.assertEqual(given["chunk_delta_rule", None][1], {"beta": "beta'"})
        self.assertIn(("chunk_linear_attn", False), given)
        self.assertIn(("chunk_linear_attn", True), given)
        # Checked and timed as a call with the final state, in a graph without.
        is_forward = lambda call: call[1][0] == "q'"  # noqa: E731
        self.assertEqual([c[-1] for c in self.calls if c[0] == "chunk_gla" and is_forward(c)], [True, True, False])

    def test_gradients_are_those_of_all_inputs(self):
        status, text, errors, data = self.run_tool("--operators", "gla,delta_rule")
        self.assertEqual(status, 0, errors)
        rows = [row for row in data["comparisons"] if row["form"] == "backward"]
        self.assertEqual([(row["operator"], row["agrees"], row["error"]) for row in rows], [("gla", True, 0), ("delta_rule", True, 0)])
        # Without the forward pass, which the graph has as well.
        self.assertEqual((rows[0]["theirs"]["graph"], rows[0]["graph_ratio"]), (0.4, 1.6))
        self.assertIn("| 03 `gla --backward` `dispatch` | `chunk_gla` |", text)

        class Differs(FakeGpu):
            errors = {"dbeta": 0.5}

        status, _, _, data = self.run_tool("--operators", "delta_rule", gpu=Differs)
        self.assertEqual((status, [row["agrees"] for row in data["comparisons"]]), (1, [True, True, True, False]))

    def test_gradients_that_they_refuse_are_skipped_with_the_reason(self):
        class Refuses(FakeGpu):
            def gradients(self, o, inputs, d_o):
                raise RuntimeError("not on Hopper")

        status, text, _, data = self.run_tool("--operators", "simple_gla", gpu=Refuses)
        self.assertEqual((status, data["comparisons"][-1]["skipped"]), (0, "RuntimeError: not on Hopper"))
        self.assertIn("`chunk_simple_gla` for `simple_gla --backward` at L = 64: skipped, RuntimeError: not on Hopper", text)

    def test_sequences_for_flashinfer_lie_one_behind_the_other(self):
        self.run_tool("--operators", "delta_rule", "--key-dim", "64", "--value-dim", "64")
        calls = [call for call in self.calls if call[0] == "chunk_gated_delta_rule"]
        self.assertEqual(calls[0][1:5], (("q|", "k|", "v|"), {"beta": "beta|"}, 0.125, [64] * 4))
        self.assertEqual([call[-1] for call in calls], [True, True, False])

    def test_delta_rules_with_gates_get_two_kinds_of_them(self):
        status, text, errors, data = self.run_tool("--operators", "gated_delta_rule,kda")
        self.assertEqual(status, 0, errors)
        met = [(row["operator"], row["peer"], row["gates"]) for row in data["comparisons"]]
        for operator, peer, other in (
            ("gated_delta_rule", "flashinfer.chunk_gated_delta_rule", "weak"),
            ("gated_delta_rule", "flash_qla.chunk_gated_delta_rule", "weak"),
            ("kda", "cudnn.kimi_delta_attention", "bounded"),
        ):
            self.assertIn((operator, peer, None), met)
            self.assertIn((operator, f"{peer}, {other} gates", other), met)
        self.assertIn("| 05 `kda (bounded gates)`, cuDNN frontend | 1.60 |", text)
        # FlashInfer takes gates, the others their logarithms.
        gates = {(function, qkv[0], given["g"]) for function, qkv, given, *_ in self.calls}
        packed = ("kimi_delta_attention", "q|", "g|"), ("chunk_gated_delta_rule", "q|", "exp(g|)")
        self.assertEqual(gates, {*packed, ("chunk_gated_delta_rule", "q'", "g'"), ("chunk_kda", "q'", "g'")})
        # The tables of the pages are of the gates that the chapters draw.
        for row in data["comparisons"]:
            row["graph_ratio"] = 0.1 if row["gates"] else 1.6
        self.assertEqual(peers.ratios(data, of="cuDNN frontend"), {("kda", 64): 1.6})

    def test_gates_are_those_that_they_are_said_to_be(self):
        gpu = object.__new__(tool.Gpu)
        sigmoid = lambda x: 1 / (1 + exp(-x))  # noqa: E731
        functional = types.SimpleNamespace(logsigmoid=lambda x: log(sigmoid(x)))
        gpu.torch = types.SimpleNamespace(sigmoid=sigmoid, nn=types.SimpleNamespace(functional=functional))
        drawn = {(peer.operator, peer.gates): gpu.draw_gates(peer, 0.0) for peer in tool.PEERS if "g" in peer.gate}
        expected = {("gated_delta_rule", None): -log(2), ("gated_delta_rule", "weak"): log(sigmoid(5)),
                    ("kda", None): -log(2) / 4, ("kda", "bounded"): -2.5}  # fmt: skip
        for key, value in expected.items():
            self.assertAlmostEqual(drawn[key], value)

    def test_packed_sequences(self):
        status, text, errors, data = self.run_tool("--operators", "simple_gla,gated_delta_rule", "--packed", "3,100,20")
        self.assertEqual(status, 0, errors)
        problem = {"B": 1, "H": 8, "L": 123, "Dk": 128, "Dv": 128, "lengths": [3, 100, 20]}
        self.assertEqual({json.dumps(row["problem"]) for row in data["comparisons"]}, {json.dumps(problem)})
        # One behind the other in their layout, whichever it is.
        given = {(name, qkv[0], str(more.get("cu_seqlens", starts))) for name, qkv, more, _, starts, _ in self.calls}
        self.assertIn(("chunk_simple_gla", "q'", "[3, 100, 20]"), given)
        self.assertIn(("chunk_gated_delta_rule", "q|", "[3, 100, 20]"), given)
        self.assertEqual({starts for *_, starts in given}, {"[3, 100, 20]"})
        self.assertIn("| 04 `simple_gla --lengths` | 1.60 |", text)
        self.assertEqual(peers.ratios(data), {}, "such times are no times of one sequence")
        self.assertTrue(all(inputs["cu_seqlens"] == [3, 100, 20] for _, inputs in self.called()))

    def test_packed_sequences_for_flashinfer_come_with_their_greatest_length(self):
        seen = []

        def function(q, k, v, *, beta, scale, cu_seqlens, output_final_state, max_seqlen=None):
            seen.append(max_seqlen)
            return "o of delta_rule|", "S of delta_rule^T"

        self.modules["flashinfer.gdn_prefill"].chunk_gated_delta_rule = function
        for arguments, expected in ((["--packed", "3,100,20"], 100), ([], 64)):
            status, _, errors, _ = self.run_tool("--operators", "delta_rule", *arguments)
            self.assertEqual((status, set(seen)), (0, {expected}), errors)
            seen.clear()

    def test_one_token_with_a_pool_of_states(self):
        status, text, errors, data = self.run_tool("--decode", "1,8", "-H", "32", "--key-dim", "64")
        self.assertEqual(status, 0, errors)
        self.assertEqual(len(data["comparisons"]), 2 * len(tool.DECODE_PEERS))
        for row in data["comparisons"]:
            self.assertEqual((row["agrees"], row["call_ratio"], row["graph_ratio"]), (True, 2.0, 1.6), row)
        self.assertEqual([row["problem"] for row in data["comparisons"]][::6],
                         [{"B": B, "H": 32, "L": 1, "Dk": 64, "Dv": 128} for B in (8, 1)])  # fmt: skip
        # Each of their functions under its own names; the fp32 pool and the bf16 one; slots in both of FlashInfer's.
        given = {(function, state): inputs for function, inputs, _, state in self.tokens}
        gated, slots = "gated_delta_rule_decode_pretranspose", "state_indices"
        self.assertEqual({scale for _, _, scale, _ in self.tokens}, {0.125})
        for states in ("fp32", "bf16"):
            self.assertEqual(given[gated, f"state_pool of {states}^T"], ("q'", "k'", "v'", "a'", "b'", slots))
        starts = list(range(2))
        self.assertEqual(given["recurrent_kda", "state_pool of bf16^T"],
                         ("q-", "k-", "v-", "bf16(g-)", "bf16(beta-)", slots, starts))  # fmt: skip
        ordered = "state_pool of fp32[state_indices]"
        self.assertEqual(given["fused_recurrent_gated_delta_rule", ordered], ("q'", "k'", "v'", "beta'", "g'"))
        self.assertEqual(given["fused_recurrent_kda", ordered], ("q'", "k'", "v'", "beta'", "g'"))
        self.assertEqual(given["fused_recurrent_delta_rule", ordered], ("q'", "k'", "v'", "beta'", None))
        # In place: what follows goes on from what the first has left.
        self.assertIn((gated, "S of decode^T"), given)
        # Ours: the stage of these states, and no tensors that are theirs alone.
        called = {(options[options.index("--stage") + 1], inputs["state_pool"]) for options, inputs in self.called()}
        self.assertEqual(called, {("dispatch", "state_pool of fp32"), ("bf16_states", "state_pool of bf16")})
        for options, inputs in self.called():
            self.assertIn("--pool", options)
            self.assertFalse({"a", "b"} & set(inputs))
        self.assertEqual({"--gated-delta-rule", "--kda", "--delta-rule"} - {x for options, _ in self.called() for x in options}, set())
        self.assertIn("| theirs over ours, in a graph, at L = | 1x32x1 | 8x32x1 |", text)
        self.assertIn("| 06 `decode --gated-delta-rule --pool (fp32 states)`, FlashInfer | 1.60 | 1.60 |", text)
        self.assertIn("| 06 `decode --gated-delta-rule --pool (bf16 states)`, FlashInfer | 1.60 | 1.60 |", text)
        self.assertIn("| 06 `decode --kda --pool (fp32 states)` | 1.60 | 1.60 |", text)
        self.assertEqual(peers.ratios(data), {}, "such times are no times of a whole sequence")

    def test_one_token_of_chosen_rules_and_what_does_not_go_with_it(self):
        status, _, errors, data = self.run_tool("--decode", "8", "-H", "32", "--operators", "kda")
        self.assertEqual((status, {row["form"] for row in data["comparisons"]}), (0, {"kda+pool"}), errors)
        for arguments, words in (
            (["--decode", "1,0"], "--decode: '1,0' is not a list of whole numbers above 0"),
            (["--decode", "1", "--operators", "gla"], "--operators: there is no 'gla'; known are delta_rule, gated_delta_rule, kda"),
            (["--decode", "1", "--packed", "3,4"], "--decode does not go with"),
            (["--decode", "1", "--shapes", "1x2x3"], "--decode does not go with"),
            (["--decode", "1", "--key-heads", "4"], "--decode does not go with"),
        ):
            with self.assertRaisesRegex(tool.Missing, words):
                self.run_tool(*arguments)

    def test_a_pool_that_they_left_as_it_was_is_found(self):
        self.modules["flashinfer.kda"].recurrent_kda = lambda **_: ("o of decode-", None)
        status, text, _, _ = self.run_tool("--decode", "8", "-H", "32", "--operators", "kda")
        self.assertEqual(status, 1)
        self.assertIn("**differs from 06 `decode --kda --pool (bf16 states)` `bf16_states`", text)

    def test_heads_that_share_keys(self):
        status, text, errors, data = self.run_tool("--key-heads", "4", "--shapes", "2x8x64")
        self.assertEqual(status, 0, errors)
        self.assertEqual({row["operator"] for row in data["comparisons"]}, set(tool.SHARE_KEYS))
        self.assertEqual({(row["problem"]["H"], row["problem"]["Hk"]) for row in data["comparisons"]}, {(8, 4)})
        self.assertIn("| 05 `kda --key-heads 4` | 1.60 |", text)
        self.assertEqual({options[options.index("--key-heads") + 1] for options, _ in self.called()}, {"4"})
        for arguments, words in (
            (["--key-heads", "3"], "--key-heads: 3 does not divide the heads"),
            (["--key-heads", "4", "--packed", "3,4"], "--packed and --key-heads do not go together"),
            (["--packed", "3,0"], "--packed: '3,0' is not a list of whole numbers above 0"),
        ):
            with self.assertRaisesRegex(tool.Missing, words):
                self.run_tool(*arguments)

    def test_a_state_that_they_did_not_transpose_is_found(self):
        function = lambda q, k, v, **_: ("o of delta_rule|", "S of delta_rule")  # noqa: E731
        self.modules["flashinfer.gdn_prefill"].chunk_gated_delta_rule = function
        status, text, _, _ = self.run_tool("--operators", "delta_rule")
        self.assertEqual(status, 1)
        self.assertIn("`flashinfer.chunk_gated_delta_rule` at L = 64: **differs", text)

    def test_flashinfer_is_skipped_for_widths_that_differ(self):
        status, _, _, data = self.run_tool("--operators", "delta_rule", "--value-dim", "64")
        self.assertEqual((status, data["comparisons"][2]["peer"]), (0, "flashinfer.chunk_gated_delta_rule"))
        self.assertEqual(data["comparisons"][2]["skipped"], "ValueError: keys and values must have the same width")

    def test_flashinfer_is_left_out_where_it_is_not_installed(self):
        with mock.patch.dict(sys.modules, {"flashinfer": None}):
            status, _, errors, data = self.run_tool("--operators", "delta_rule")
        self.assertEqual((status, len(data["comparisons"])), (0, 3))
        self.assertNotIn("FlashInfer", data["versions"])
        self.assertIn("flashinfer.chunk_gated_delta_rule is left out: ", errors)

    def test_versions_that_want_heads_first_are_told(self):
        seen = []

        def old(q, k, v, g, scale=None, output_final_state=False, head_first=True):
            seen.append(head_first)
            return "o of gla'", "S of gla"

        def newer(q, k, v, g, scale=None, output_final_state=False, head_first=False):
            seen.append(head_first)
            return "o of gla'", "S of gla"

        for function in (old, newer):
            self.modules["fla.ops.gla"].chunk_gla = function
            self.run_tool("--operators", "gla")
        self.assertEqual(set(seen), {False})

    def test_what_they_refuse_is_skipped_with_the_reason(self):
        def refuses(q, k, v, g, scale, output_final_state):
            raise AssertionError("a known miscompilation\nmore")

        self.modules["fla.ops.gla"].chunk_gla = refuses
        del self.modules["fla.ops.gla"].fused_recurrent_gla
        status, text, errors, data = self.run_tool("--operators", "gla,delta_rule")
        self.assertEqual(status, 0)
        self.assertEqual(data["comparisons"][0]["skipped"], "AssertionError: a known miscompilation")
        self.assertIn("AttributeError", data["comparisons"][1]["skipped"])
        self.assertIn("- `chunk_gla` at L = 64: skipped, AssertionError: a known miscompilation", text)
        self.assertEqual(data["comparisons"][2]["graph_ratio"], 1.6)

    def test_outputs_that_differ_have_no_ratio(self):
        class Differs(FakeGpu):
            errors = {"S of gla": 0.03}

        status, text, errors, data = self.run_tool("--operators", "gla", gpu=Differs)
        self.assertEqual(status, 1)
        self.assertEqual((data["comparisons"][0]["agrees"], data["comparisons"][0]["graph_ratio"]), (False, None))
        self.assertIn("**differs from 03 `gla` `dispatch` by 0.03**", text)
        self.assertEqual(peers.ratios(data), {})

        class NotFinite(FakeGpu):
            errors = {"o of gla": float("nan")}

        status, _, _, data = self.run_tool("--operators", "gla", gpu=NotFinite)
        self.assertEqual((status, data["comparisons"][0]["agrees"]), (1, False))

    def test_a_stage_of_ours_that_fails_is_status_1(self):
        self.chapter("03_gla", False)
        status, _, errors, data = self.run_tool("--operators", "gla,delta_rule")
        self.assertEqual(status, 1)
        self.assertIn("03_gla gla dispatch failed: o differs", errors)
        self.assertEqual([row["operator"] for row in data["comparisons"]], ["delta_rule"] * 4)

    def test_what_is_missing_is_one_line_and_status_2(self):
        for arguments in (["--operators", "nothing"], ["--lengths", "1,x"], ["--build", str(self.folder)]):
            errors = io.StringIO()
            with contextlib.redirect_stderr(errors):
                self.assertEqual(tool.main(["--build", str(self.folder / "build"), *arguments]), 2)
            self.assertEqual(errors.getvalue().count("\n"), 1, errors.getvalue())
        with mock.patch.dict(sys.modules, {"torch": None}), contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual(tool.main(["--build", str(self.folder / "build")]), 2)
        self.assertIn("pip install torch", errors.getvalue())

    def test_calls_are_timed_with_the_cache_flushed_and_after_a_warm_up(self):
        gpu = object.__new__(tool.Gpu)
        gpu.flush = mock.Mock()
        times = iter([9.0] * 3 + [1.0, 3.0] * 25)
        with mock.patch.object(tool.Gpu, "elapsed_ms", lambda self, work: next(times)):
            self.assertEqual(gpu.time_call(lambda: None), {"median": 2.0, "min": 1.0, "max": 3.0, "runs": 50})
        self.assertEqual(gpu.flush.zero_.call_count, 53)
        times, clock = iter([9.0] * 3 + [1.0] * 25), iter(range(99))
        with mock.patch.object(tool.Gpu, "elapsed_ms", lambda self, work: next(times)):
            with mock.patch.object(tool.time, "monotonic", lambda: next(clock)):
                self.assertEqual(gpu.time_call(lambda: None)["runs"], 20)

    def test_every_stage_is_in_its_chapter(self):
        for peer in tool.PEERS + tool.DECODE_PEERS:
            main = (tool.ROOT / peer.chapter / "main.cpp").read_text(encoding="utf-8")
            self.assertIn(f'.name = "{peer.stage}"', main, peer.label)


if __name__ == "__main__":
    unittest.main()
