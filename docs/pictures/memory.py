"""The memory hierarchy of each GPU stage: tensors in device memory, and what its kernels keep on the chip."""

from dataclasses import dataclass
import re
import textwrap

from svg import Picture


@dataclass
class Kernel:
    """A kernel, what it has in shared memory and in registers (lines of text; empty: nothing worth a box), and its ways.

    reads and writes name tensors; a name with a `*` behind it goes to or comes from registers, not shared memory.
    """

    name: str
    shared: list[str]
    registers: list[str]
    reads: list[str]
    writes: list[str]
    hands_on: bool = False  # from registers into the shared memory of the next panel, which is the same block


@dataclass
class Stage:
    path: str  # of the source
    tensors: list[str]  # in device memory, from left to right; `+` before a workspace
    kernels: list[Kernel]
    words: str  # what is to be seen


BACKWARD = "01_linear_attention/causal_dot_product_backward/"
BARE, LINEAR, GLA = "01_linear_attention/causal_dot_product/", "02_chunkwise/linear_attention/", "03_gla/gla/"
FUSED, SIMPLE, DELTA, SCAN = (
    "04_fused_chunk/gla/",
    "04_fused_chunk/simple_gla/",
    "05_deltanet_wy/delta_rule/",
    "06_scan/scan/",
)

GATED_DELTA = "05_deltanet_wy/gated_delta_rule/"
KDA = "05_deltanet_wy/kda/"
LINEAR_BACKWARD = "02_chunkwise/linear_attention_backward/"
DELTA_BACKWARD = "05_deltanet_wy/delta_rule_backward/"
SIMPLE_BACKWARD = "04_fused_chunk/simple_gla_backward/"

STAGES = [
    Stage(
        BARE + "3_atomic.cu",
        ["q, k", "v", "o"],
        [Kernel("atomic: 8 rows of S per block", ["S [8, Dv]"], ["q_t, k_t, v_t as they", "are needed; a part of o_t"], ["q, k*", "v*"], ["o*"])],
        "Eight rows of the state in shared memory; every block adds its part of each output to device memory.",
    ),
    Stage(
        BARE + "4_registers.cu",
        ["q, k", "v", "o"],
        [Kernel("registers: a block per head", ["q_t, k_t"], ["S: a column per thread"], ["q, k", "v*"], ["o*"])],
        "The state is in registers, a column per thread. Only q and k of one position pass through shared memory.",
    ),
    Stage(
        BARE + "5_lmha.cu",
        ["q, k", "v", "o"],
        [Kernel("lmha: a block per head", ["tiles of q, k, v, twice"], ["S: a column per thread;", "the next tile, under way"], ["q, k", "v"], ["o*"])],
        "The state is in registers, a column per thread. Tiles of q, k and v pass through shared memory, in two buffers.",
    ),
    Stage(
        BARE + "6_lmha_low_occupancy.cu",
        ["q, k", "v", "o"],
        [Kernel("a block per value column", ["totals of the warps, twice"], ["sums of 4 positions per warp,", "S_t: Dk over the lanes"], ["q, k*", "v*"], ["o*"])],
        "A column of the state lies over the lanes of each warp, in registers; only the warps' totals pass through shared memory.",
    ),
    Stage(
        BACKWARD + "2_lmha.cu",
        ["q, k, v, do", "dq", "dk", "dv"],
        [
            Kernel("dq: lmha from the start", ["tiles of do, v, k, twice"], ["S^T: a column per thread"], ["q, k, v, do"], ["dq*"]),
            Kernel("dk: lmha from the end", ["tiles of v, do, q, twice"], ["dS^T: a column per thread"], ["q, k, v, do"], ["dk*"]),
            Kernel("dv: lmha from the end", ["tiles of k, q, do, twice"], ["dS: a column per thread"], ["q, k, v, do"], ["dv*"]),
        ],
        "Three kernels, each that of the forward stage, with a state in registers; two of them read the sequence from its end.",
    ),
    Stage(
        "01_linear_attention/causal_attention/2_gpu.cu",
        ["q, k, v", "+phi(q), phi(k), [v, 1]", "+o', Dv + 1 columns", "o"],
        [
            Kernel("features", [], ["a row at a time"], ["q, k, v*"], ["phi(q), phi(k), [v, 1]*"]),
            Kernel("causal_dot_product", ["tiles"], ["S, with z as a column"], ["phi(q), phi(k), [v, 1]"], ["o', Dv + 1 columns*"]),
            Kernel("normalise", [], ["a row at a time"], ["o', Dv + 1 columns*"], ["o*"]),
        ],
        "Three kernels; the features and the output with its normaliser pass through device memory between them.",
    ),
    Stage(
        "01_linear_attention/causal_attention_backward/dispatch/dispatch.cu",
        ["inputs, do", "+phi(q), phi(k), [v, 1]", "+o', Dv + 1 columns", "+do'", "+dphi(q), dphi(k), d[v, 1]", "dq, dk, dv"],
        [
            Kernel("features", [], ["a row at a time"], ["inputs, do*"], ["phi(q), phi(k), [v, 1]*"]),
            Kernel("causal_dot_product", ["tiles"], ["S, with z as a column"], ["phi(q), phi(k), [v, 1]"], ["o', Dv + 1 columns*"]),
            Kernel("division", [], ["a row at a time"], ["o', Dv + 1 columns*", "inputs, do*"], ["do'*"]),
            Kernel("its gradients", ["tiles"], ["S, dS, with z and dz"], ["phi(q), phi(k), [v, 1]", "do'"], ["dphi(q), dphi(k), d[v, 1]*"]),
            Kernel("feature map", [], ["a row at a time"], ["dphi(q), dphi(k), d[v, 1]*", "inputs, do*"], ["dq, dk, dv*"]),
        ],
        "The forward kernels, then the gradient of each in the opposite order; every intermediate passes through device memory.",
    ),
    Stage(
        "01_linear_attention/bidirectional_attention/1_gpu.cu",
        ["k, v", "+S_m", "+S", "q", "o"],
        [
            Kernel("state of a segment", ["16 rows of K and V"], ["4 x 4 sums per thread"], ["k, v"], ["S_m*"]),
            Kernel("sum over segments", [], ["one sum per thread"], ["S_m*"], ["S*"]),
            Kernel("output", ["16 columns of Q", "and 16 rows of S"], ["4 x 4 sums per thread"], ["S", "q"], ["o*"]),
        ],
        "Three kernels; partial states and their sum are in device memory.",
    ),
    Stage(
        "01_linear_attention/bidirectional_attention_backward/dispatch/dispatch.cu",
        ["+phi(q), phi(k), [v, 1]", "+S', dS'", "+o', do'", "+dphi(q), dphi(k), d[v, 1]"],
        [
            Kernel("S' = phi(K)^T V'", ["16 rows of each"], ["4 x 4 sums per thread"], ["phi(q), phi(k), [v, 1]"], ["S', dS'*"]),
            Kernel("o' = phi(Q) S', then do'", ["16 columns of each"], ["4 x 4 sums per thread"], ["phi(q), phi(k), [v, 1]", "S', dS'"], ["o', do'*"]),
            Kernel("dS' = phi(Q)^T do'", ["16 rows of each"], ["4 x 4 sums per thread"], ["phi(q), phi(k), [v, 1]", "o', do'"], ["S', dS'*"]),
            Kernel("three gradients", ["16 columns of each"], ["4 x 4 sums per thread"], ["phi(q), phi(k), [v, 1]", "S', dS'", "o', do'"], ["dphi(q), dphi(k), d[v, 1]*"]),
        ],
        "One kernel for six products; states, outputs and gradients pass through device memory between them.",
    ),
    Stage(
        LINEAR + "3_materialized.cu",
        ["k, v", "+states [N, Dk, Dv]", "q", "o"],
        [
            Kernel("chunk_states", ["tiles of K and V"], ["4 x 4 sums per thread"], ["k, v"], ["states [N, Dk, Dv]*"]),
            Kernel("running_sum", [], ["one element of S per thread"], ["states [N, Dk, Dv]*"], ["states [N, Dk, Dv]*"]),
            Kernel("outputs", ["tiles of Q, K or S, V; P"], ["4 x 4 sums per thread"], ["k, v", "states [N, Dk, Dv]", "q"], ["o*"]),
        ],
        "Three kernels; each chunk's state is written, read and written by the running sum, and read again.",
    ),
    Stage(
        LINEAR + "4_fused.cu",
        ["q, k", "v", "o"],
        [Kernel("fused: 32 columns per block", ["tiles of Q (later P), K, V;", "S: 32 columns, all of Dk"], ["4 x 4 scores, 4 x 2 sums"], ["q, k", "v"], ["o*"])],
        "One kernel; the state stays in shared memory while the block walks the chunks.",
    ),
    Stage(
        LINEAR + "5_mma_products.cu",
        ["q, k", "v", "o"],
        [Kernel("mma_products: 64 columns", ["Q, K, V, P in bf16, padded; S in", "fp32, a copy in bf16: 106 KB"], ["sums of one product at a time,", "and O, as accumulators, fp32"], ["q, k", "v"], ["o*"])],
        "One kernel; the state stays in shared memory, and a copy of it in bf16 is a factor of a product.",
    ),
    Stage(
        LINEAR + "6_register_state.cu",
        ["q, k", "v", "o"],
        [Kernel("register_state: 64 columns", ["Q, K, V, P in bf16, padded: 52 KB"], ["S and O as accumulators, fp32:", "96 of 255 registers"], ["q, k", "v"], ["o*"])],
        "One kernel; the state stays in registers as accumulators of mma, chunks of Q, K and V and the scores P in shared memory.",
    ),
    Stage(
        LINEAR + "7_tensor_core.cu",
        ["q, k", "v", "o"],
        [Kernel("tensor_core: 64 columns", ["Q, K, V, P in bf16, swizzled: 48 KB"], ["S and O as accumulators, fp32:", "96 of 255 registers"], ["q, k", "v"], ["o*"])],
        "As stage 6, with tiles that are swizzled instead of padded.",
    ),
    Stage(
        LINEAR + "8_pipelined.cu",
        ["q, k", "v", "o"],
        [Kernel("pipelined: 64 or 128 columns", ["Q, K, V twice, by cp.async;", "P: together 104 KB"], ["S and O as accumulators, fp32:", "192 of 255 registers"], ["q, k", "v"], ["o*"])],
        "As stage 7, with two sets of tiles: asynchronous copies fill one while products read the other.",
    ),
    Stage(
        LINEAR + "9_segments.cu",
        ["k, v", "+states of segments", "q", "o"],
        [
            Kernel("states of segments", ["K and V, three sets"], ["the sum of K^T V"], ["k, v"], ["states of segments*"]),
            Kernel("running sum", [], ["one element per thread"], ["states of segments*"], ["states of segments*"]),
            Kernel("the walk of stage 8", ["Q, K, V twice; P"], ["S and O"], ["k, v", "states of segments*", "q"], ["o*"]),
        ],
        "Three kernels; one state for each segment of the sequence passes through device memory, k and v are read twice.",
    ),
    Stage(
        "02_chunkwise/linear_attention_packed/1_packed.cu",
        ["cu_seqlens", "list of segments", "k, v", "+states of segments", "q", "o"],
        [
            Kernel("list", ["places of the next", "of each length"], ["one sequence per thread"], ["cu_seqlens"], ["list of segments*"]),
            Kernel("states of segments", ["K and V, three sets"], ["the sum of K^T V"], ["list of segments", "k, v"], ["states of segments*"]),
            Kernel("running sum", [], ["one element per thread"], ["states of segments*"], ["states of segments*"]),
            Kernel("the walk of stage 8", ["Q, K, V twice; P"], ["S and O"], ["list of segments", "k, v", "states of segments*", "q"], ["o*"]),
        ],
        "As segments, which begin where a list says, and the list is made from where the sequences begin.",
    ),
    Stage(
        LINEAR + "10_bulk_copies.cu",
        ["q, k", "v", "o"],
        [Kernel("bulk_copies: 64 or 128 columns", ["Q, K, V twice, by bulk copies;", "P; two barriers"], ["S and O as accumulators, fp32"], ["q, k", "v"], ["o*"])],
        "As stage 8, with tiles that one thread asks for; a barrier in shared memory counts their bytes.",
    ),
    Stage(
        LINEAR + "11_warpgroup_mma.cu",
        ["q, k", "v", "o"],
        [Kernel("warpgroup_mma: 64 columns", ["Q, K, V twice, by bulk copies;", "P and O: together 96 KB"], ["S^T, and a copy in bf16; O^T;", "scores: 160 of 191 registers"], ["q, k", "v"], ["o*"])],
        "One warpgroup; its products read Q, K, V and P from shared memory without a way through registers.",
    ),
    Stage(
        LINEAR + "12_specialized.cu",
        ["q, k", "v", "o"],
        [Kernel("specialized: three warpgroups", ["Q, K, V three times; P and O", "twice: together 152 KB"], ["loads: nothing; scores: Q K^T;", "state: S^T, its copy, O^T"], ["q, k", "v"], ["o*"])],
        "One kernel; warpgroups with different tasks hand on tiles, scores and outputs through shared memory.",
    ),
    Stage(
        LINEAR + "13_balanced_roles.cu",
        ["q, k", "v", "o"],
        [Kernel("balanced_roles: four warpgroups", ["Q, K, V four times; P and O", "twice: together 192 KB"], ["two with scores; one loads and", "stores; one with S^T and O^T"], ["q, k", "v"], ["o*"])],
        "As stage 12; two warpgroups compute scores, and warps that had nothing to do store the outputs.",
    ),
    Stage(
        LINEAR + "14_queued_products.cu",
        ["q, k", "v", "o"],
        [Kernel("queued_products: four warpgroups", ["Q, K, V four times; P and O", "twice: together 192 KB"], ["the state: S^T, O^T, and two", "copies of S^T in bf16"], ["q, k", "v"], ["o*"])],
        "As stage 13; the update of the state for the next chunk waits in the queue behind the outputs of this one.",
    ),
    Stage(
        LINEAR + "dispatch/cluster.cu",
        ["q, k", "v", "o"],
        [Kernel("cluster: two blocks of three warpgroups", ["Q, K, V and P four times, half", "of Q, K, P from the other block"], ["one warpgroup with scores; the", "state: as queued_products"], ["q, k", "v"], ["o*"])],
        "As queued_products; the two blocks of a head load half of Q and K each, for both, and compute every second P.",
    ),
    Stage(
        LINEAR_BACKWARD + "dispatch/materialized.cu",
        ["k, v", "+S [N, Dk, Dv]", "q, do", "+dS [N, Dk, Dv]", "dq, dk, dv"],
        [
            Kernel("chunk_states, twice", ["tiles of two tensors"], ["K^T V or Q^T dO"], ["k, v", "q, do"], ["S [N, Dk, Dv]*", "dS [N, Dk, Dv]*"]),
            Kernel("running_sums, from each side", [], ["one element per thread"], ["S [N, Dk, Dv]*", "dS [N, Dk, Dv]*"], ["S [N, Dk, Dv]*", "dS [N, Dk, Dv]*"]),
            Kernel("gradient, three times", ["three tiles; P"], ["S or dS, and a gradient"], ["k, v", "S [N, Dk, Dv]*", "q, do", "dS [N, Dk, Dv]*"], ["dq, dk, dv*"]),
        ],
        "Three kernels; each chunk's state and its gradient are written, read and written by the running sums, and read again.",
    ),
    Stage(
        LINEAR_BACKWARD + "3_walks.cu",
        ["q, k", "v, do", "dq, dk, dv"],
        [Kernel("gradient_walk, three times", ["three tiles; P: 48 KB"], ["S or dS, and a gradient"], ["q, k", "v, do"], ["dq, dk, dv*"])],
        "One kernel for each gradient; S, or from the other end dS, stays in registers as accumulators of mma.",
    ),
    Stage(
        GLA + "dispatch/recurrent_gpu.cu",
        ["q, k, g", "v", "o"],
        [Kernel("recurrent: 32 columns per block", ["tiles of 8 steps of q, k, v", "and 2^(g / ln 2), twice"], ["S: Dk / 8 rows of a", "pair of columns per thread"], ["q, k, g", "v"], ["o*"])],
        "The state is in registers; gates are computed on their way into shared memory.",
    ),
    Stage(
        GLA + "5_chunk_gpu.cu",
        ["g", "+sums b (high, low)", "k, v", "+states [N, Dk, Dv]", "q", "o"],
        [
            Kernel("gate_sums", [], ["a column of g per thread"], ["g*"], ["sums b (high, low)*"]),
            Kernel("chunk_states", ["K, decayed; V"], ["4 x 4 sums"], ["sums b (high, low)", "k, v"], ["states [N, Dk, Dv]*"]),
            Kernel("running_sum", [], ["an element of S"], ["states [N, Dk, Dv]*"], ["states [N, Dk, Dv]*"]),
            Kernel("outputs", ["Q, K, sums, S, V; P"], ["4 x 4 sums"], ["sums b (high, low)", "k, v", "states [N, Dk, Dv]", "q"], ["o*"]),
        ],
        "Four kernels; sums of g and each chunk's state are in device memory between them.",
    ),
    Stage(
        GLA + "6_subchunk_tensor_core.cu",
        ["q, k, g", "+q~, k~", "+decays G, scores", "v", "o"],
        [
            Kernel("prepare", [], ["16 keys that fade, 16 rows", "of q, k, g; 16 scores"], ["q, k, g*"], ["q~, k~*", "decays G, scores*"]),
            Kernel("the walk", ["q~, k~, G, V; P"], ["S and O as accumulators"], ["q~, k~", "decays G, scores", "v"], ["o*"]),
        ],
        "Two kernels; decayed queries and keys, decays and the diagonal's scores pass through device memory.",
    ),
    Stage(
        GLA + "7_subchunk_walk.cu",
        ["q, k, g", "+q~, k~", "+decays G, scores", "v", "o"],
        [
            Kernel("prepare", [], ["16 keys that fade, 16 rows", "of q, k, g; 16 scores"], ["q, k, g*"], ["q~, k~*", "decays G, scores*"]),
            Kernel("the walk", ["q~, k~, G, scores, V, twice"], ["S, and O of a sub-chunk"], ["q~, k~", "decays G, scores", "v"], ["o*"]),
        ],
        "Two kernels; no scores between sub-chunks, and q~ and k~ are used as prepare has left them.",
    ),
    Stage(
        GLA + "8_segments.cu",
        ["q, k, g", "+q~, k~, G, scores", "v", "+states of segments", "o"],
        [
            Kernel("prepare", [], ["16 keys that fade"], ["q, k, g*"], ["q~, k~, G, scores*"]),
            Kernel("segment_states", ["k~, G, V, three sets"], ["H of the segment"], ["q~, k~, G, scores", "v"], ["states of segments*"]),
            Kernel("carry", [], ["an element per thread"], ["states of segments*"], ["states of segments*"]),
            Kernel("the walk", ["q~, k~, G, V, twice"], ["S and O"], ["q~, k~, G, scores", "v", "states of segments*"], ["o*"]),
        ],
        "Four kernels; a state and a decay for each segment pass through device memory.",
    ),
    Stage(
        GLA + "9_warpgroup_walk.cu",
        ["q, k, g", "+q~, k~", "+decays G, scores", "v", "o"],
        [
            Kernel("prepare", [], ["16 keys that fade"], ["q, k, g*"], ["q~, k~*", "decays G, scores*"]),
            Kernel("the walk: two warpgroups", ["q~, k~, G, scores, V four", "times; O twice"], ["one loads and stores; one has S^T,", "two copies of it in bf16, O^T"], ["q~, k~", "decays G, scores", "v"], ["o*"]),
        ],
        "Two kernels; the walk takes its tiles by bulk copies, and the state is the sums of warpgroups' products.",
    ),
    Stage(
        "03_gla/gla_backward/dispatch/subchunk_walks.cu",
        ["q, k, g", "+q~, k~, D, P", "v, do", "dv", "+S_n, W", "+A, B", "dq, dk, dg"],
        [
            Kernel("prepare", [], ["16 keys that fade"], ["q, k, g*"], ["q~, k~, D, P*"]),
            Kernel("columns_walk, for dq", ["do, v, k~, D"], ["S^T, and A of a sub-chunk"], ["q~, k~, D, P", "v, do"], ["S_n, W*", "A, B*"]),
            Kernel("columns_walk, for dk", ["v, do, q~, D"], ["dS^T, and B of a sub-chunk"], ["q~, k~, D, P", "v, do", "S_n, W*"], ["S_n, W*", "A, B*"]),
            Kernel("values_walk", ["k~, q~, D, P, do"], ["dS, and dv of a sub-chunk"], ["q~, k~, D, P", "v, do"], ["dv*"]),
            Kernel("decays", ["R [16, 16] per warp"], ["k, decays, dk, dg: 16 rows"], ["q, k, g*", "v, do*", "S_n, W*", "A, B*"], ["dq, dk, dg*"]),
        ],
        "Five kernels; what the walks read of S and dS stays fp32 in device memory until its decays and dg are computed.",
    ),
    Stage(
        "03_gla/gla_backward/dispatch/materialized.cu",
        ["q, k, g", "+q~, k~, D, P", "v, do", "+S_n, S'_n", "dq, dk, dg", "dv"],
        [
            Kernel("prepare", [], ["16 keys that fade"], ["q, k, g*"], ["q~, k~, D, P*"]),
            Kernel("states", ["k~ or q~, D, v or do,", "three sets"], ["S or S', 64 x 64"], ["q~, k~, D, P", "v, do"], ["S_n, S'_n*"]),
            Kernel("gradients", ["q~, k~, D, P, v, do, S', then S;", "at last A, B and R"], ["dv, then A and B;", "k, decays, dk, dg: 16 rows"], ["q~, k~, D, P", "v, do", "S_n, S'_n", "q, k, g*"], ["dq, dk, dg*", "dv*"]),
        ],
        "Three kernels; the states of all chunks pass through device memory in bf16, and a block has all that a chunk's gradients consist of.",
    ),
    Stage(
        "03_gla/gla_backward/4_anchored_pairs.cu",
        ["q, k, g", "+q~, k~, G, P", "v, do", "+states S, dS", "dq, dk, dg", "dv"],
        [
            Kernel("prepare", [], ["16 keys that fade"], ["q, k, g*"], ["q~, k~, G, P*"]),
            Kernel("states: a warpgroup", ["k~ or q~, G, v or do,", "three times; a state"], ["S^T or dS^T, 64 columns"], ["q~, k~, G, P", "v, do"], ["states S, dS"]),
            Kernel("gradients: a warpgroup", ["q~, k~, G, v, do;", "dS or S; then gradients"], ["sums of products;", "sums of g; dg: 16 rows"], ["q~, k~, G, P", "v, do", "states S, dS", "q, k, g"], ["dq, dk, dg", "dv"]),
        ],
        "Three kernels; the states of all chunks pass through device memory in bf16, and the last kernel needs g alone of q, k and g.",
    ),
    Stage(
        "03_gla/gla_backward/5_one_anchor.cu",
        ["q, k, g", "+q^, k^, decays", "v, do", "+states S, dS^", "dq, dk, dg", "dv"],
        [
            Kernel("prepare: a chunk", ["sums of g"], ["16 rows of q, k and g"], ["q, k, g*"], ["q^, k^, decays*"]),
            Kernel("states: a warpgroup", ["k^ or q^, v or do,", "decays; a state"], ["S^T or dS^T, 64 columns"], ["q^, k^, decays", "v, do"], ["states S, dS^"]),
            Kernel("gradients: a warpgroup", ["q^, k^, v, do;", "dS^ or S; then gradients"], ["sums of products;", "sums of g; dg: 16 rows"], ["q^, k^, decays", "v, do", "states S, dS^", "q, k, g"], ["dq, dk, dg", "dv"]),
        ],
        "Three kernels, as before; the decays are in the rows and in one of the two states, as long as no column forgets too much.",
    ),
    Stage(
        FUSED + "1_five_steps.cu",
        ["g", "+sums", "q, k", "+q_g, k_g", "v", "+partials", "+scores", "o"],
        [
            Kernel("1 decay_cumsum", [], ["one sum per thread"], ["g*"], ["sums*"]),
            Kernel("2 prepare_qg_kg", [], ["one column per thread"], ["sums*", "q, k*"], ["q_g, k_g*"]),
            Kernel("3 fused_chunk", ["a sub-chunk"], ["S [64, 64]"], ["sums", "q_g, k_g", "v"], ["partials*"]),
            Kernel("4 inner_chunk", ["q, k, sums"], ["one pair per thread"], ["sums", "q, k"], ["scores*"]),
            Kernel("5 combine", ["v, P"], ["o"], ["v", "partials*", "scores"], ["o*"]),
        ],
        "Five kernels; sums, decayed q and k, partial outputs and scores are all written to device memory and read again.",
    ),
    Stage(
        FUSED + "2_intra_fused.cu",
        ["q, k, g", "+sums", "+q_g, k_g", "v", "o"],
        [
            Kernel("prepare", [], ["16 rows of a column of g, q and k"], ["q, k, g*"], ["sums*", "q_g, k_g*"]),
            Kernel("the walk", ["a sub-chunk of q, k, q_g,", "k_g, sums, v; P [16, 16]"], ["S: all of Dk, 16 columns per warp"], ["q, k, g", "sums", "q_g, k_g", "v"], ["o*"]),
        ],
        "Two kernels: scores stay in shared memory.",
    ),
    Stage(
        FUSED + "3_one_kernel.cu",
        ["q, k, g", "v", "o"],
        [
            Kernel("preparing warps of a block", [], ["16 keys that fade,", "rows loaded ahead"], ["q, k, g*"], [], True),
            Kernel("walking warps of the same block", ["q~, k~, D, P of two chunks; V:", "108 KB, filled by the other warps"], ["S and O as accumulators"], ["v"], ["o*"]),
        ],
        "One kernel, two kinds of warps. What chapter 03 writes to device memory goes through shared memory: no workspace.",
    ),
    Stage(
        FUSED + "4_specialized.cu",
        ["q, k, g", "v", "o"],
        [
            Kernel("preparing warps of a block", [], ["16 keys that fade,", "rows loaded ahead"], ["q, k, g*"], [], True),
            Kernel("walking warpgroup of the same block", ["q~, k~, decays, P of two chunks, filled", "by the other warps; V, O twice: 132 KB"], ["S^T, s, O^T"], ["v"], ["o"]),
        ],
        "One kernel; warps that prepare hand chunks to a warpgroup that walks, through shared memory.",
    ),
    Stage(
        FUSED + "5_score_levels.cu",
        ["q, k, g", "v", "o"],
        [Kernel("four or five warpgroups", ["8 sub-chunks: q~, k~, D, P;", "8 halves of q, k, g; V twice, O"], ["two threads load and store; one", "multiplies levels, one prepares;", "others walk: S^T, s, O^T"], ["q, k, g", "v"], ["o*"])],
        "One kernel; all scores are products, and warps multiply them that neither prepare nor walk.",
    ),
    Stage(
        FUSED + "6_segments.cu",
        ["q", "k, g", "v", "+states, decays of segments", "o"],
        [
            Kernel("states of segments", ["8 sub-chunks: k~, D; k, g as", "loaded; V, three times: 180 KB"], ["the segment's sum"], ["k, g", "v"], ["states, decays of segments*"]),
            Kernel("carry", [], ["one element per thread"], ["states, decays of segments*"], ["states, decays of segments*"]),
            Kernel("walk of score_levels", ["as there: 220 KB"], ["S^T, s, O^T"], ["q", "k, g", "v", "states, decays of segments*"], ["o*"]),
        ],
        "Three kernels; a state and a decay for each segment pass through device memory.",
    ),
    Stage(
        SIMPLE + "3_fused.cu",
        ["q, k", "v", "g", "o"],
        [Kernel("fused: 64 or 128 columns", ["Q, K, V twice, P, g and its", "sums: 107 KB"], ["S 128 and O 64 of 255 registers;", "decays of a lane's rows"], ["q, k", "v", "g*"], ["o*"])],
        "One kernel; the state stays in registers, and g is summed a chunk ahead.",
    ),
    Stage(
        SIMPLE + "dispatch/two_kernels.cu",
        ["k, v, g", "+states [N, Dk, Dv] bf16", "q", "o"],
        [
            Kernel("states", ["K and V, three sets: 49 KB"], ["S: a tile of 64 x 64"], ["k, v, g"], ["states [N, Dk, Dv] bf16*"]),
            Kernel("outputs", ["Q, K, V, P: 56 KB"], ["O; S as fragments"], ["k, v, g", "states [N, Dk, Dv] bf16*", "q"], ["o*"]),
        ],
        "Two kernels; the state that each chunk starts from is written to device memory and read again.",
    ),
    Stage(
        SIMPLE + "dispatch/segments.cu",
        ["k, v, g", "+states, decays of segments", "q", "o"],
        [
            Kernel("states of segments", ["K, V, g, three sets: 97 KB"], ["the segment's sum"], ["k, v, g"], ["states, decays of segments*"]),
            Kernel("carry", [], ["one element per thread"], ["states, decays of segments*"], ["states, decays of segments*"]),
            Kernel("the walk of fused", ["Q, K, V twice; P, sums"], ["S and O"], ["k, v, g", "states, decays of segments*", "q"], ["o*"]),
        ],
        "Three kernels; a state and a decay for each segment pass through device memory.",
    ),
    Stage(
        SIMPLE + "4_specialized.cu",
        ["q, k", "v", "g", "o"],
        [Kernel("specialized: four warpgroups", ["Q, K, V four times; P, V~ and O", "twice; sums of g: 211 KB"], ["two with scores and decays;", "one with S^T and two O^T"], ["q, k", "v", "g"], ["o*"])],
        "One warp sums up g. Warpgroups with scores write V, multiplied by its decays, to shared memory, beside the scores.",
    ),
    Stage(
        SIMPLE + "5_register_scores.cu",
        ["q, k", "v", "g", "o"],
        [Kernel("register_scores: four warpgroups", ["Q, K, V four times; O and Q S", "twice; sums of g: 214 KB"], ["two with scores, P, O;", "one with S^T, V~, Q S"], ["q, k", "v", "g"], ["o*"])],
        "P goes from product to product in registers; what comes from the state passes through shared memory in fp32.",
    ),
    Stage(
        SIMPLE + "6_bounded_start.cu",
        ["q, k", "v", "g", "o"],
        [Kernel("bounded_start: a block per segment", ["Q, K, V four times; O and Q S", "twice; sums of g: 214 KB"], ["two with scores, P, O;", "one with S^T, V~, Q S"], ["q, k", "v", "g"], ["o*"])],
        "k, v and g of the chunks before a segment are read twice; no state of a segment passes through device memory.",
    ),
    Stage(
        SIMPLE_BACKWARD + "3_walks.cu",
        ["q, k, g", "v, do", "dq, dk, dv", "+q . dq, k . dk", "dg"],
        [
            Kernel("gradient_walk, three times", ["four tiles; P; sums: 57 KB"], ["S or dS, and a gradient"], ["q, k, g", "v, do"], ["dq, dk, dv*", "q . dq, k . dk*"]),
            Kernel("gate_gradient", [], ["dg of two positions", "per lane"], ["q . dq, k . dk*"], ["dg*"]),
        ],
        "S and dS stay in registers; of what dg needs, one number per position and walk passes through device memory.",
    ),
    Stage(
        SIMPLE_BACKWARD + "4_segments.cu",
        ["q, k, g", "v, do", "+S, dS of segments", "dq, dk, dv", "+q . dq, k . dk", "dg"],
        [
            Kernel("segment_states, twice", ["tiles of two tensors; sums"], ["the segment's sum"], ["q, k, g", "v, do"], ["S, dS of segments*"]),
            Kernel("carry, twice", [], ["one element per thread"], ["S, dS of segments*"], ["S, dS of segments*"]),
            Kernel("the walks, three times", ["four tiles; P; sums"], ["S or dS, and a gradient"], ["q, k, g", "v, do", "S, dS of segments*"], ["dq, dk, dv*", "q . dq, k . dk*"]),
            Kernel("gate_gradient", [], ["parts of <S, dS>"], ["S, dS of segments*", "q . dq, k . dk*"], ["dg*"]),
        ],
        "Four kernels; a state and its gradient pass through device memory at each border of segments, and dg starts from them.",
    ),
    Stage(
        SIMPLE_BACKWARD + "dispatch/pipelined.cu",
        ["q, k, g", "v, do", "+S, dS of segments", "dq, dk, dv", "+q . dq, k . dk", "dg"],
        [
            Kernel("segment_states, twice; carry", ["tiles of two tensors; sums"], ["the segment's sum"], ["q, k, g", "v, do"], ["S, dS of segments*"]),
            Kernel("the walks, three times", ["three tiles twice; a fourth;", "P, sums: 100 KB"], ["S or dS, and a gradient"], ["q, k, g", "v, do", "S, dS of segments*"], ["dq, dk, dv*", "q . dq, k . dk*"]),
            Kernel("gate_gradient", [], ["parts of <S, dS>"], ["S, dS of segments*", "q . dq, k . dk*"], ["dg*"]),
        ],
        "The kernels of segments; the walks load the tiles of the next chunk while they compute on those of this one.",
    ),
    Stage(
        SIMPLE_BACKWARD + "5_hopper_gradients.cu",
        ["q, k, g", "v, do", "+S, dS of segments", "dq, dk, dv", "+q . dq, k . dk", "dg"],
        [
            Kernel("border_states, both; carry", ["two tiles four times; sums"], ["S or dS; V~"], ["q, k, g", "v, do"], ["S, dS of segments*"]),
            Kernel("gradient_walks: all three", ["three tiles four times; O,", "Q S twice; sums: 214 KB"], ["two warpgroups with P, O;", "one with S or dS, V~, Q S"], ["q, k, g", "v, do", "S, dS of segments*"], ["S, dS of segments*", "dq, dk, dv*", "q . dq, k . dk*"]),
            Kernel("gate_gradient", [], ["parts of <S, dS>"], ["S, dS of segments*", "q . dq, k . dk*"], ["dg*"]),
        ],
        "A run of segments begins with the state that the run before has left in device memory; with few heads, a kernel before has left all of them.",
    ),
    Stage(
        DELTA + "5_chunk_gpu.cu",
        ["k, beta", "+T", "v", "+W, U (later v_new)", "+a state per chunk", "q", "o"],
        [
            Kernel("solve", ["K, A"], ["a column of T"], ["k, beta"], ["T*"]),
            Kernel("vectors", ["T, K or V"], ["4 x 4 sums"], ["k, beta", "T", "v"], ["W, U (later v_new)*"]),
            Kernel("states", ["S, W, v_new, K"], ["4 x 2 sums"], ["k, beta", "W, U (later v_new)"], ["W, U (later v_new)*", "a state per chunk*"]),
            Kernel("outputs", ["Q, K, S, v_new; P"], ["4 x 4 sums"], ["W, U (later v_new)", "a state per chunk", "q", "k, beta"], ["o*"]),
        ],
        "Four kernels; T, W, U, v_new and each chunk's state are in device memory between them.",
    ),
    Stage(
        DELTA + "6_block_inverse.cu",
        ["k, beta", "+T", "v", "+W, U (later v_new)", "+a state per chunk", "q", "o"],
        [
            Kernel("solve", ["K, A; X"], ["a column of a block;", "an element of each block"], ["k, beta"], ["T*"]),
            Kernel("vectors", ["T, K or V"], ["4 x 4 sums"], ["k, beta", "T", "v"], ["W, U (later v_new)*"]),
            Kernel("states", ["S, W, v_new, K"], ["4 x 2 sums"], ["k, beta", "W, U (later v_new)"], ["W, U (later v_new)*", "a state per chunk*"]),
            Kernel("outputs", ["Q, K, S, v_new; P"], ["4 x 4 sums"], ["W, U (later v_new)", "a state per chunk", "q", "k, beta"], ["o*"]),
        ],
        "As `chunk_gpu`, but T comes from its blocks: X beside A in shared memory.",
    ),
    Stage(
        DELTA + "7_tensor_core.cu",
        ["q, k, beta", "+T, P", "v", "+W, U", "+v_new, states", "o"],
        [
            Kernel("prepare", ["Q, K; A"], ["(I + A)^-1 in blocks"], ["q, k, beta"], ["T, P*"]),
            Kernel("vectors", ["T; K or V"], ["sums of W or U"], ["q, k, beta", "T, P*", "v"], ["W, U*"]),
            Kernel("states", ["W, U, K, ahead"], ["S^T, v_new^T"], ["q, k, beta", "W, U"], ["v_new, states*"]),
            Kernel("outputs", ["Q, P"], ["O; S, v_new"], ["q, k, beta", "T, P*", "v_new, states*"], ["o*"]),
        ],
        "Four kernels in bf16; T, P, W, U, v_new and states pass through device memory, the last two as fragments.",
    ),
    Stage(
        DELTA + "8_fused.cu",
        ["q, k, beta", "+T, P", "v", "o"],
        [
            Kernel("prepare", ["Q, K; A"], ["(I + A)^-1 in blocks"], ["q, k, beta"], ["T, P*"]),
            Kernel("the walk: four equal warps", ["K, V, T, Q, P of two chunks;", "O on its way out: 118 KB"], ["S^T, residual^T, v_new^T, O^T"], ["q, k, beta", "T, P", "v"], ["o*"]),
        ],
        "Two kernels; only T and P pass through device memory. Every warp has S, v_new and O of its columns in registers.",
    ),
    Stage(
        DELTA + "9_warpgroup_chain.cu",
        ["q, k, beta", "+T, P as rows", "v", "o"],
        [
            Kernel("prepare_tiles", ["Q, K; A"], ["(I + A)^-1 in blocks"], ["q, k, beta"], ["T, P as rows*"]),
            Kernel("walk: two warpgroups", ["Q, K, V, T, P three times;", "O twice: 208 KB"], ["the chain: S^T, residual,", "v_new and O^T"], ["q, k, beta", "T, P as rows", "v"], ["o*"]),
        ],
        "The chain's factors that depend on the state stay in one warpgroup's registers; the other warpgroup loads and stores.",
    ),
    Stage(
        DELTA + "10_scores_in_walk.cu",
        ["q, k, beta", "+T as rows", "v", "o"],
        [
            Kernel("prepare_tiles_of_T", ["K; A"], ["(I + A)^-1 in blocks"], ["q, k, beta"], ["T as rows*"]),
            Kernel("walk: three warpgroups", ["Q, K, V, T, P three times;", "O twice: 208 KB"], ["the chain: S^T, residual, v_new", "and O^T; another one: P"], ["q, k, beta", "T as rows", "v"], ["o*"]),
        ],
        "P goes from warpgroup to warpgroup through shared memory. Of T and P only T is in device memory.",
    ),
    Stage(
        DELTA + "11_cluster.cu",
        ["q, k, beta", "v", "o"],
        [
            Kernel("one kernel: clusters of two blocks", ["Q, K three times, V twice; O;", "T, P four times: 220 KB"], ["the chain: S^T, residual, v_new", "and O^T; two more: T and P"], ["q, k, beta", "v"], ["o*"]),
        ],
        "Each block computes T and P of every second chunk and pushes them into the other block's shared memory.",
    ),
    Stage(
        DELTA + "12_three_blocks.cu",
        ["q, k, beta", "v", "o"],
        [
            Kernel("one kernel: clusters of three blocks", ["Q, K twice, V twice; O; or Q, K", "three times; T, P four times"], ["two chains: S^T, residual, v_new", "and O^T; block 2: T and P"], ["q, k, beta", "v"], ["o*"]),
        ],
        "The third block of a cluster computes all T and P and pushes them into the shared memory of the two blocks that walk.",
    ),
    Stage(
        DELTA + "13_segments.cu",
        ["q, k, beta", "+T as rows", "v", "+H, E; starts", "o"],
        [
            Kernel("prepare_inverses: a warpgroup", ["K, later T; blocks of A:", "26 KB"], ["K K^T; a row of T's blocks"], ["q, k, beta"], ["T as rows*"]),
            Kernel("maps of segments", ["K, T, 128 columns of V or K", "four times: 192 KB"], ["64 columns of H or E,", "residual, v_new"], ["q, k, beta", "T as rows", "v"], ["H, E; starts*"]),
            Kernel("from segment to segment", ["E twice: 64 KB"], ["64 columns of S, of E S"], ["H, E; starts"], ["H, E; starts*"]),
            Kernel("walk of all segments", ["Q, K, V, T, P three times;", "O twice: 196 KB"], ["the chain: S^T, residual, v_new", "and O^T; another one: P"], ["q, k, beta", "T as rows", "v", "H, E; starts"], ["o*"]),
        ],
        "The walk of all segments is that of `scores_in_walk`; the maps are the same walk over [V, -K] without outputs.",
    ),
    Stage(
        DELTA + "dispatch/recurrent_gpu.cu",
        ["q, k, beta", "v", "o"],
        [Kernel("recurrent: 32 columns per block", ["tiles of 8 steps of q, k, v", "and beta, twice"], ["S: Dk / 8 rows of a pair of", "columns per thread; k S, q S"], ["q, k, beta", "v"], ["o*"])],
        "The state is in registers; all sums of a step are taken of the old state.",
    ),
    Stage(
        DELTA + "dispatch/specialized_warps.cu",
        ["q, k, beta", "+T, P", "v", "o"],
        [
            Kernel("prepare", ["Q, K; A"], ["(I + A)^-1 in blocks"], ["q, k, beta"], ["T, P*"]),
            Kernel("the walk: loading warps, chain, outputs", ["K, V, T and Q, P of three chunks;", "S and v_new for the outputs: 190 or 213 KB"], ["chain: S, v_new; outputs: O"], ["q, k, beta", "T, P", "v"], ["o*"]),
        ],
        "Two kernels; only T and P pass through device memory. In the walk S and v_new go from warp to warp through shared memory.",
    ),
    Stage(
        DELTA + "dispatch/one_kernel.cu",
        ["q, k, beta", "v", "o"],
        [
            Kernel("one kernel: four warpgroups", ["Q, K four times, V twice; O;", "T, P twice; blocks of A: 221 KB"], ["the chain: S^T, residual, v_new", "and O^T; two more: T and P"], ["q, k, beta", "v"], ["o*"]),
        ],
        "Nothing but inputs, outputs and states is in device memory: T and P go from warp to warp through shared memory.",
    ),
    Stage(
        DELTA + "dispatch/one_block.cu",
        ["q, k, beta", "v", "o"],
        [
            Kernel("one kernel: four warpgroups", ["Q, K four times; V, later O, twice;", "T, P twice; blocks of A: 220 KB"], ["two chains: S^T, residual,", "v_new, O^T and P; one more: T"], ["q, k, beta", "v"], ["o*"]),
        ],
        "Both chains of a head are in one block and read the same Q, K, T and P.",
    ),
    Stage(
        DELTA_BACKWARD + "3_walks.cu",
        ["q, k, beta", "+T, P", "v, do", "+v_new, S, dS", "dv", "dq, dk, dbeta"],
        [
            Kernel("prepare", ["Q, K; A"], ["(I + A)^-1 in blocks"], ["q, k, beta"], ["T, P*"]),
            Kernel("states", ["K, V, T, ahead"], ["S^T, residual^T, v_new^T"], ["q, k, beta", "T, P", "v, do"], ["v_new, S, dS*"]),
            Kernel("states' gradients", ["K, Q, dO, T, P, ahead"], ["dS^T, dv_new^T, dV^T"], ["q, k, beta", "T, P", "v, do"], ["v_new, S, dS*", "dv*"]),
            Kernel("gradients", ["Y, Z"], ["an element of dQ and of dK"], ["q, k, beta", "v, do", "v_new, S, dS", "dv"], ["dq, dk, dbeta*"]),
        ],
        "Two walks leave v_new, S, dS and dv of every chunk. The last kernel loads them from device memory for each product.",
    ),
    Stage(
        DELTA_BACKWARD + "4_tensor_core.cu",
        ["q, k, beta", "+T, P", "v, do", "+v_new, S, dS", "dv", "dq, dk, dbeta"],
        [
            Kernel("prepare", ["Q, K; A"], ["(I + A)^-1 in blocks"], ["q, k, beta"], ["T, P*"]),
            Kernel("states", ["K, V, T, ahead"], ["S^T, residual^T, v_new^T"], ["q, k, beta", "T, P", "v, do"], ["v_new, S, dS*"]),
            Kernel("states' gradients", ["K, Q, dO, T, P, ahead"], ["dS^T, dv_new^T, dV^T"], ["q, k, beta", "T, P", "v, do"], ["v_new, S, dS*", "dv*"]),
            Kernel("gradients", ["dO, dV, v_new; Q, K; Y, Z"], ["dQ or dK; S, dS"], ["q, k, beta", "v, do", "v_new, S, dS", "dv"], ["dq, dk, dbeta*"]),
        ],
        "The kernels of walks, but the last one takes the rows of a chunk from tiles in shared memory.",
    ),
    Stage(
        DELTA_BACKWARD + "dispatch/both_ends.cu",
        ["q, k, beta", "+T, P", "v, do", "+v_new, S, dS", "dv", "dq, dk, dbeta"],
        [
            Kernel("prepare", ["Q, K; A"], ["(I + A)^-1 in blocks"], ["q, k, beta"], ["T, P*"]),
            Kernel("walks: half of the blocks from each end", ["K, V, T or K, Q, dO, T, P, ahead"], ["S^T, v_new^T or dS^T, dV^T"], ["q, k, beta", "T, P", "v, do"], ["v_new, S, dS*", "dv*"]),
            Kernel("gradients", ["dO, dV, v_new; Q, K; Y, Z"], ["dQ or dK; S, dS"], ["q, k, beta", "v, do", "v_new, S, dS", "dv"], ["dq, dk, dbeta*"]),
        ],
        "Three kernels: one launch walks from both ends at once.",
    ),
    Stage(
        DELTA_BACKWARD + "5_warpgroups.cu",
        ["q, k, beta", "+T, P as rows", "v, do", "+v_new, S, dS", "dv", "dq, dk, dbeta"],
        [
            Kernel("prepare_tiles", ["Q, K; A"], ["(I + A)^-1 in blocks"], ["q, k, beta"], ["T, P as rows*"]),
            Kernel("walks: half of the blocks from each end", ["K, V, T or K, Q, dO, T, P three", "times; a state, rows: 216 KB"], ["the chain: S^T, residual, v_new", "or dS^T, X, dV"], ["q, k, beta", "T, P as rows", "v, do"], ["v_new, S, dS*", "dv*"]),
            Kernel("gradients: two warpgroups", ["dO, dV, v_new, S, Q, K; in their", "places Y, Z, dS, dQ, dK: 112 KB"], ["dQ; dK"], ["q, k, beta", "v, do", "v_new, S, dS", "dv"], ["dq, dk, dbeta*"]),
        ],
        "Three kernels on warpgroups and bulk copies. Two blocks of the last one share a multiprocessor.",
    ),
    Stage(
        DELTA_BACKWARD + "dispatch/longer_chunks.cu",
        ["q, k, beta", "+T, P as rows", "v, do", "+v_new; every second S, dS", "dv", "dq, dk, dbeta"],
        [
            Kernel("prepare_tiles", ["Q, K; A"], ["(I + A)^-1 in blocks"], ["q, k, beta"], ["T, P as rows*"]),
            Kernel("walks: half of the blocks from each end", ["K, V, T or K, Q, dO, T, P three", "times; a state, rows: 216 KB"], ["the chain: S^T, residual, v_new", "or dS^T, X, dV"], ["q, k, beta", "T, P as rows", "v, do"], ["v_new; every second S, dS*", "dv*"]),
            Kernel("gradients: from pair to pair of chunks", ["S, dO, v_new, K, dV, Q, dS;", "dQ, dK in the states' places: 224 KB"], ["dQ, then dK; scores"], ["q, k, beta", "v, do", "v_new; every second S, dS", "dv"], ["dq, dk, dbeta*"]),
        ],
        "The walks leave the states of every second chunk, and the last kernel takes two chunks at a time.",
    ),
    Stage(
        "05_deltanet_wy/gated_delta_rule_backward/dispatch/tensor_core.cu",
        ["q, k, beta, g", "+T, P, decays", "v, do", "+v_new, S, dS", "dv", "dq, dk, dbeta, dg"],
        [
            Kernel("prepare", ["Q, K; A; running sums"], ["(I + A)^-1 in blocks"], ["q, k, beta, g"], ["T, P, decays*"]),
            Kernel("walks: half of the blocks from each end", ["K, V, T or K, Q, dO, T, P,", "and decays, ahead"], ["S^T, v_new^T or dS^T, dV^T"], ["q, k, beta, g", "T, P, decays", "v, do"], ["v_new, S, dS*", "dv*"]),
            Kernel("gradients: eight warps", ["dO, dV, v_new; Q, K; Y, Z;", "running sums"], ["dQ, then dK; S, dS;", "products of rows"], ["q, k, beta, g", "v, do", "v_new, S, dS", "dv"], ["dq, dk, dbeta, dg*"]),
        ],
        "Three kernels. The last one has S and dS of a chunk, from which it also computes dg.",
    ),
    Stage(
        "05_deltanet_wy/gated_delta_rule_backward/dispatch/warpgroups.cu",
        ["q, k, beta, g", "+T, P as rows, decays, f", "v, do", "+v_new; every second S, dS", "dv", "dq, dk, dbeta, dg"],
        [
            Kernel("prepare_tiles", ["Q, K; A; running sums"], ["(I + A)^-1 in blocks"], ["q, k, beta, g"], ["T, P as rows, decays, f*"]),
            Kernel("walks: half of the blocks from each end", ["K, V, T or K, Q, dO, T, P, decays", "three times; a state, rows: 218 KB"], ["the chain: S^T, residual, v_new", "or dS^T, X, dV"], ["q, k, beta, g", "T, P as rows, decays, f", "v, do"], ["v_new; every second S, dS*", "dv*"]),
            Kernel("gradients: from pair to pair of chunks", ["S, dO, v_new, K, dV, Q, dS;", "dQ and dK in place of states;", "sums: 227 KB"], ["dQ, then dK; scores;", "products of rows"], ["q, k, beta, g", "v, do", "v_new; every second S, dS", "dv"], ["dq, dk, dbeta, dg*"]),
        ],
        "The kernels of longer_chunks of delta_rule with gates; a warp of the last one adds up dg.",
    ),
    Stage(
        "05_deltanet_wy/kda_backward/dispatch/tensor_core.cu",
        ["q, k, g, beta", "+T, P; Q+, K+, K-", "v, do", "+v_new, S, dS", "dv", "dq, dk, dbeta, dg"],
        [
            Kernel("prepare: a sub-chunk per warp", ["decayed q and k, their scores;", "then A: 58 KB"], ["16 rows of two columns;", "(I + A)^-1 in blocks"], ["q, k, g, beta"], ["T, P; Q+, K+, K-*"]),
            Kernel("walks: half of the blocks from each end", ["K+, K-, V, T or K+, K-, Q+, dO,", "T, P, ahead: 150 KB"], ["S^T, v_new^T or dS^T, dV^T"], ["T, P; Q+, K+, K-", "v, do"], ["v_new, S, dS*", "dv*"]),
            Kernel("gradients: eight warps", ["dO, dV, v_new; Y, Z; decayed", "q and k; then sums in fp32"], ["sums; then a column of", "16 rows, and its pairs"], ["q, k, g, beta", "v, do", "v_new, S, dS", "dv"], ["dq, dk, dbeta, dg*"]),
        ],
        "Three kernels. In the last one, sums that cross sub-chunks go from products to lanes through shared memory.",
    ),
    Stage(
        KDA + "dispatch/recurrent_gpu.cu",
        ["q, k, g, beta", "v", "o"],
        [Kernel("recurrent: 32 columns per block", ["tiles of 8 steps of q, k, v,", "gates and beta, twice"], ["S: Dk / 8 rows of a pair of", "columns per thread; k S, q S"], ["q, k, g, beta", "v"], ["o*"])],
        "The state is in registers. It is decayed in the pass that computes all sums of a step.",
    ),
    Stage(
        KDA + "3_tensor_core.cu",
        ["q, k, g, beta", "+T, P; Q+, K+, K-", "v", "o"],
        [
            Kernel("prepare: a sub-chunk per warp", ["decayed q and k, their scores;", "then A: 58 KB"], ["16 rows of two columns;", "(I + A)^-1 in blocks"], ["q, k, g, beta"], ["T, P; Q+, K+, K-*"]),
            Kernel("the walk: four equal warps", ["K+, K-, V, T, Q+, P of two", "chunks; O on its way: 151 KB"], ["S^T, residual^T, v_new^T, O^T"], ["T, P; Q+, K+, K-", "v"], ["o*"]),
        ],
        "Two kernels. The rows with their decays pass through device memory, beside T and P; the walk reads nothing of g.",
    ),
    Stage(
        KDA + "dispatch/specialized_warps.cu",
        ["q, k, g, beta", "+T, P; Q+, K+, K-", "v", "o"],
        [
            Kernel("prepare: a sub-chunk per warp", ["decayed q and k, their scores;", "then A: 58 KB"], ["16 rows of two columns;", "(I + A)^-1 in blocks"], ["q, k, g, beta"], ["T, P; Q+, K+, K-*"]),
            Kernel("the walk: loading warps, chain, outputs", ["K+, K-, V, T and Q+, P of two chunks;", "S and v_new for the outputs: 195 KB"], ["chain: S, v_new; outputs: O"], ["T, P; Q+, K+, K-", "v"], ["o*"]),
        ],
        "The same two kernels; in the walk S and v_new go from warp to warp through shared memory.",
    ),
    Stage(
        KDA + "4_two_products.cu",
        ["q, k, g, beta", "+J, R; Q+, K+", "v", "o"],
        [
            Kernel("prepare_updates", ["decayed q and k, their scores;", "then A, T and P: 60 KB"], ["(I + A)^-1 in blocks;", "rows of J and of R"], ["q, k, g, beta"], ["J, R; Q+, K+*"]),
            Kernel("walk: two warpgroups", ["K+, Q+, J, R, V three times;", "O: 202 KB"], ["the chain: S^T, residual", "and O^T"], ["J, R; Q+, K+", "v"], ["o*"]),
        ],
        "The first kernel multiplies T into K- and P, so the walk has two products in line.",
    ),
    Stage(
        KDA + "5_one_anchor.cu",
        ["q, k, g, beta", "+J, R; Q+, K+", "v", "o"],
        [
            Kernel("prepare with one anchor", ["q, k, g, then K+, Q+, K-, J, R;", "the inverse in blocks: 74 KB"], ["running sums of g; P, A;", "rows of J and of R"], ["q, k, g, beta"], ["J, R; Q+, K+*"]),
            Kernel("walk: two warpgroups", ["K+, Q+, J, R, V three times;", "O: 202 KB"], ["the chain: S^T, residual", "and O^T"], ["J, R; Q+, K+", "v"], ["o*"]),
        ],
        "The first kernel turns q, k and g into what the walk reads where bulk copies have put them.",
    ),
    Stage(
        KDA + "dispatch/cluster.cu",
        ["q, k, g, beta", "v", "o"],
        [
            Kernel("one kernel: clusters of two blocks", ["q, k, g, then K+, Q+, J, R, three", "times; V, P and O: 226 KB"], ["the chain: S^T, residual, O^T;", "two more: P; A, U, R and J"], ["q, k, g, beta", "v"], ["o*"]),
        ],
        "Each block prepares every second chunk where q, k and g lie, and pushes it into the other block's shared memory.",
    ),
    Stage(
        GATED_DELTA + "dispatch/recurrent_gpu.cu",
        ["q, k, beta, g", "v", "o"],
        [Kernel("recurrent: 32 columns per block", ["tiles of 8 steps of q, k, v,", "beta and g, twice"], ["S: Dk / 8 rows of a pair of", "columns per thread; k S, q S"], ["q, k, beta, g", "v"], ["o*"])],
        "The state is in registers. The gate multiplies the sums over it, and the state where it is updated.",
    ),
    Stage(
        GATED_DELTA + "3_tensor_core.cu",
        ["q, k, beta, g", "+T, P, decays", "v", "o"],
        [
            Kernel("prepare", ["Q, K; A; running sums"], ["(I + A)^-1 in blocks"], ["q, k, beta, g"], ["T, P, decays*"]),
            Kernel("the walk: four equal warps", ["K, V, T, Q, P, decays of two", "chunks; O on its way out: 120 KB"], ["S^T, residual^T, v_new^T, O^T"], ["q, k, beta, g", "T, P, decays", "v"], ["o*"]),
        ],
        "Two kernels; only T, P and three rows of decays per chunk pass through device memory.",
    ),
    Stage(
        GATED_DELTA + "dispatch/segments.cu",
        ["q, k, beta, g", "+T, P as rows, decays", "v", "+H, E, Gamma; starts", "o"],
        [
            Kernel("prepare_tiles", ["Q, K; A; running sums"], ["(I + A)^-1 in blocks"], ["q, k, beta, g"], ["T, P as rows, decays*"]),
            Kernel("maps of segments", ["K, T, decays, V or K", "four times: 195 KB"], ["64 columns of H or E,", "residual, V or K, v_new"], ["q, k, beta, g", "T, P as rows, decays", "v"], ["H, E, Gamma; starts*"]),
            Kernel("from segment to segment", ["E twice: 64 KB"], ["64 columns of S, of E S"], ["H, E, Gamma; starts"], ["H, E, Gamma; starts*"]),
            Kernel("walk of all segments", ["Q, K, V, T, P, decays three times;", "O twice: 210 KB"], ["the chain: S^T, residual, -V,", "v_new and O^T"], ["q, k, beta, g", "T, P as rows, decays", "v", "H, E, Gamma; starts"], ["o*"]),
        ],
        "The walk of all segments is that of `warpgroup_chain`; the maps are the same walk over [V, -K] without outputs.",
    ),
    Stage(
        GATED_DELTA + "dispatch/cluster.cu",
        ["q, k, beta, g", "v", "o"],
        [
            Kernel("one kernel: clusters of two blocks", ["Q, K three times, V twice; O; T, P,", "decays four times: 227 KB"], ["the chain: S^T, residual, v_new,", "V and O^T; two more: T and P"], ["q, k, beta, g", "v"], ["o*"]),
        ],
        "Each block computes T, P and decays of every second chunk and pushes them into the other block's shared memory.",
    ),
    Stage(
        GATED_DELTA + "4_three_blocks.cu",
        ["q, k, beta, g", "v", "o"],
        [
            Kernel("one kernel: clusters of three blocks", ["Q, K twice, V twice; O; or Q, K three", "times; T, P, decays four times"], ["two chains: S^T, residual, v_new", "and O^T; block 2: T and P"], ["q, k, beta, g", "v"], ["o*"]),
        ],
        "As `cluster`, but a third block computes all T, P and decays, and pushes them into the shared memory of the two blocks that walk.",
    ),
    Stage(
        SCAN + "4_sequential_gpu.cu",
        ["x", "g", "y"],
        [Kernel("a thread per channel", [], ["y, and 8 steps of", "x and g under way"], ["x*", "g*"], ["y*"])],
        "Everything is in registers: the state, and the loads of eight steps.",
    ),
    Stage(
        SCAN + "5_blelloch_gpu.cu",
        ["x", "g", "y"],
        [Kernel("blelloch: a block per channel", ["the tree: 1024 maps, padded"], ["two steps per thread"], ["x*", "g*"], ["y*"])],
        "The tree over a tile of 1024 steps is in shared memory.",
    ),
    Stage(
        SCAN + "6_warp_shuffle.cu",
        ["x", "g", "y"],
        [Kernel("warp_shuffle: a block per channel", ["totals of 8 warps, twice"], ["4 steps per thread;", "lanes scan by shuffles"], ["x*", "g*"], ["y*"])],
        "Steps and lanes are scanned in registers; only the warps' totals are in shared memory.",
    ),
    Stage(
        SCAN + "7_single_pass.cu",
        ["x", "g", "+maps of tiles", "y"],
        [Kernel("single_pass: a block per tile", ["totals of 8 warps"], ["4 steps per thread wait here", "while one thread looks back"], ["x*", "g*", "maps of tiles*"], ["maps of tiles*", "y*"])],
        "All tiles at once; they hand their maps to each other through device memory.",
    ),
    Stage(
        SCAN + "8_warp_look_back.cu",
        ["x", "g", "+maps of tiles", "y"],
        [Kernel("warp_look_back: a block per tile", ["totals of 8 warps"], ["4 steps per thread wait here", "while a warp looks back"], ["x*", "g*", "maps of tiles*"], ["maps of tiles*", "y*"])],
        "As single_pass, but a warp reads the maps of 32 tiles at once.",
    ),
    Stage(
        SCAN + "9_wide_tiles.cu",
        ["x", "g", "+maps of tiles", "y"],
        [Kernel("wide_tiles: 8192 steps per block", ["8192 steps wait here: 64 KB;", "totals of 16 warps"], ["what is below the lane,", "in each of 4 turns"], ["x", "g", "maps of tiles*"], ["maps of tiles*", "y*"])],
        "The steps of a tile go to shared memory, 16 bytes at a time, and wait there while the tile looks back.",
    ),
    Stage(
        SCAN + "10_channel_lanes.cu",
        ["x", "g", "+maps of tiles", "y"],
        [Kernel("channel_lanes: 32 channels, 128 steps", ["totals of 8 warps,", "y before each"], ["16 steps per thread", "of its own channel"], ["x*", "g*", "maps of tiles*"], ["maps of tiles*", "y*"])],
        "A lane has one channel, and lanes have nothing to tell each other; the warps' totals are in shared memory.",
    ),
    Stage(
        "06_scan/convolution/2_scan.cu",
        ["kernel", "+gates", "u", "y"],
        [
            Kernel("gates", [], ["one per thread"], ["kernel*"], ["gates*"]),
            Kernel("scan's dispatch", ["totals of the warps"], ["steps wait for what was before"], ["gates*", "u*"], ["y*"]),
        ],
        "A kernel makes the gates, which all channels share; the rest is the operator scan.",
    ),
    Stage(
        "06_scan/convolution/dispatch/cufft.cu",
        ["kernel, u", "+rows, then spectra", "y"],
        [
            Kernel("to_rows", ["32 x 32 of u"], ["four numbers"], ["kernel, u"], ["rows, then spectra*"]),
            Kernel("cuFFT", ["its own"], ["its own"], ["rows, then spectra"], ["rows, then spectra*"]),
            Kernel("product", [], ["a frequency"], ["rows, then spectra*"], ["rows, then spectra*"]),
            Kernel("cuFFT, back", ["its own"], ["its own"], ["rows, then spectra"], ["rows, then spectra*"]),
            Kernel("from_rows", ["32 x 32 of y"], ["four numbers"], ["rows, then spectra"], ["y*"]),
        ],
        "Rows and spectra lie in one workspace, which every kernel reads and writes.",
    ),
    Stage(
        "06_scan/decode/3_step.cu",
        ["q, k, gates", "v", "S", "o"],
        [Kernel("step: 128 columns of a state per block", ["q, k, gates"], ["a row of S at a time:", "one column per thread"], ["q, k, gates", "v*", "S*"], ["S*", "o*"])],
        "The state goes from device memory through registers and back, row after row.",
    ),
    Stage(
        "06_scan/decode/4_step_in_registers.cu",
        ["q, k, gates", "v", "S", "o"],
        [Kernel("step_in_registers: 32 columns per block", ["q, k, gates; sums over rows"], ["S: 4 columns of every 16th row,", "all loads before the first wait"], ["q, k, gates", "v*", "S*"], ["S*", "o*"])],
        "The state goes from device memory through registers and back; all of a block's part is under way at once.",
    ),
    Stage(
        "06_scan/decode/5_replay.cu",
        ["q, k, gates", "v", "+updates", "S", "o"],
        [Kernel("replay: 32 columns per block", ["q, k, gates; kept updates"], ["S: 4 columns of every 16th row,", "all updates since it was written"], ["q, k, gates", "v*", "updates", "S*"], ["updates*", "S*", "o*"])],
        "The state is read, but written once per 16 tokens; in between each token leaves its update beside it.",
    ),
    Stage(
        "06_scan/delta_rule/1_affine_chain.cu",
        ["q, k, beta", "v", "+maps [Phi | H]", "+states", "o"],
        [
            Kernel("leaves", ["32 steps of k, v"], ["columns of [Phi | H]"], ["q, k, beta", "v"], ["maps [Phi | H]*"]),
            Kernel("apply: leaf after leaf", ["rows of Phi"], ["4 x 4 sums"], ["maps [Phi | H]", "states"], ["states*"]),
            Kernel("outputs", ["32 steps of q, k, v"], ["columns of S"], ["q, k, beta", "v", "states*"], ["o*"]),
        ],
        "Maps of leaves and the states before them are in device memory; one launch per leaf applies a map.",
    ),
    Stage(
        "06_scan/delta_rule/2_scan_affine.cu",
        ["q, k, beta", "v", "+maps [Phi | H]", "+states", "o"],
        [
            Kernel("leaves", ["32 steps of k, v"], ["columns of [Phi | H]"], ["q, k, beta", "v"], ["maps [Phi | H]*"]),
            Kernel("up: compose", ["rows of Phi_2"], ["4 x 4 sums"], ["maps [Phi | H]"], ["maps [Phi | H]*"]),
            Kernel("down: apply", ["rows of Phi_1"], ["4 x 4 sums"], ["maps [Phi | H]", "states"], ["states*"]),
            Kernel("outputs", ["32 steps of q, k, v"], ["columns of S"], ["q, k, beta", "v", "states*"], ["o*"]),
        ],
        "Maps of runs and states before leaves are in device memory, between the kernels of the tree's levels.",
    ),
    Stage(
        "06_scan/over_devices/2_all_gather.cu",
        ["q, k, v, g", "+own map", "+maps of all", "+S before", "o"],
        [
            Kernel("first pass: the chapter's dispatch", ["its own"], ["its own"], ["q, k, v, g"], ["own map*"]),
            Kernel("all-gather", [], ["NCCL's own"], ["own map*"], ["maps of all*"]),
            Kernel("compose", [], ["an element of S", "per thread"], ["maps of all*"], ["S before*"]),
            Kernel("second pass", ["its own"], ["its own"], ["q, k, v, g", "S before*"], ["o*"]),
        ],
        "On each device: its own map and those of all devices are in device memory; an all-gather fills the latter.",
    ),
    Stage(
        "06_scan/over_devices/dispatch/states_alone.cu",
        ["k, v, g", "+segments' maps", "+own map", "+maps of all", "+S before", "q", "o"],
        [
            Kernel("segment_maps", ["two chunks of K, V; decays"], ["H: 64 or 128 columns"], ["k, v, g"], ["segments' maps*"]),
            Kernel("compose", [], ["an element per thread"], ["segments' maps*"], ["own map*"]),
            Kernel("all-gather", [], ["NCCL's own"], ["own map*"], ["maps of all*"]),
            Kernel("compose", [], ["an element per thread"], ["maps of all*"], ["S before*"]),
            Kernel("the chapter's dispatch", ["its own"], ["its own"], ["k, v, g", "S before*", "q"], ["o*"]),
        ],
        "On each device: the first pass reads k, v and g alone, and maps are composed twice, of segments and of devices.",
    ),
    Stage(
        "06_scan/over_devices/dispatch/overlap.cu",
        ["k, v, g", "+segments' maps", "+own map", "+maps of all", "+S before", "q", "o"],
        [
            Kernel("segment_maps", ["two chunks of K, V; decays"], ["H: 64 or 128 columns"], ["k, v, g"], ["segments' maps*"]),
            Kernel("compose", [], ["an element per thread"], ["segments' maps*"], ["own map*"]),
            Kernel("all-gather", [], ["NCCL's own"], ["own map*"], ["maps of all*"]),
            Kernel("compose", [], ["an element per thread"], ["maps of all*"], ["S before*"]),
            Kernel("the chapter's dispatch", ["its own"], ["its own"], ["k, v, g", "S before*", "q"], ["o*"]),
        ],
        "The way of `states_alone` for each half of the heads: while one half is in the all-gather, the other one is in a kernel.",
    ),
    Stage(
        "06_scan/over_devices_backward/1_all_gather.cu",
        ["inputs, do", "+own maps", "+maps of all", "+S, dS", "gradients"],
        [
            Kernel("outputs, for Phi, H", ["its own"], ["its own"], ["inputs, do"], ["own maps*"]),
            Kernel("gradients, for H'", ["its own"], ["its own"], ["inputs, do"], ["own maps*"]),
            Kernel("all-gather", [], ["NCCL's own"], ["own maps*"], ["maps of all*"]),
            Kernel("compose, both ways", [], ["an element per thread"], ["maps of all*"], ["S, dS*"]),
            Kernel("the gradients", ["its own"], ["its own"], ["inputs, do", "S, dS*"], ["gradients*"]),
        ],
        "On each device: an all-gather brings the maps of states and of their gradients, which are composed from two ends.",
    ),
    Stage(
        "06_scan/over_devices_backward/dispatch/states_alone.cu",
        ["inputs, do", "+segments' maps", "+own maps", "+maps of all", "+S, dS", "gradients"],
        [
            Kernel("segment_maps, twice", ["two chunks", "and decays"], ["H, then H'"], ["inputs, do"], ["segments' maps*"]),
            Kernel("compose, twice", [], ["an element per thread"], ["segments' maps*"], ["own maps*"]),
            Kernel("all-gather", [], ["NCCL's own"], ["own maps*"], ["maps of all*"]),
            Kernel("compose, both ways", [], ["an element per thread"], ["maps of all*"], ["S, dS*"]),
            Kernel("the gradients", ["its own"], ["its own"], ["inputs, do", "S, dS*"], ["gradients*"]),
        ],
        "On each device: the first passes read k and v, and q and do, and the gates alone.",
    ),
    Stage(
        "06_scan/simple_gla/1_scan_states.cu",
        ["k, v, g", "+x [L, Dk Dv]", "+S [L, Dk Dv]", "q", "o"],
        [
            Kernel("products", ["k_t, v_t"], ["32 columns of x_t"], ["k, v, g"], ["x [L, Dk Dv]*"]),
            Kernel("scan's dispatch", ["totals of the warps"], ["steps"], ["k, v, g*", "x [L, Dk Dv]*"], ["S [L, Dk Dv]*"]),
            Kernel("outputs", ["q_t"], ["32 columns of S_t"], ["S [L, Dk Dv]*", "q"], ["o*"]),
        ],
        "Every product and every state passes through device memory.",
    ),
    Stage(
        "06_scan/simple_gla/dispatch/scan_tiles.cu",
        ["k, v, g", "+H [L / 64, Dk Dv]", "+S [L / 64, Dk Dv]", "q", "o"],
        [
            Kernel("sums of tiles", ["64 steps of k, v"], ["32 columns of H_n"], ["k, v, g"], ["H [L / 64, Dk Dv]*"]),
            Kernel("scan's dispatch", ["totals of the warps"], ["steps"], ["H [L / 64, Dk Dv]*"], ["S [L / 64, Dk Dv]*"]),
            Kernel("walk of all tiles", ["64 steps of q, k, v"], ["32 columns of S"], ["k, v, g", "S [L / 64, Dk Dv]*", "q"], ["o*"]),
        ],
        "One state for each tile of 64 steps passes through device memory.",
    ),
    Stage(
        "06_scan/simple_gla/2_scan_fused.cu",
        ["q, k, g", "v", "+states of tiles", "o"],
        [Kernel("scan_fused: a tile of 64 steps, 32 columns", ["64 steps of q, k and v: 72 KB"], ["S and the tile's own sum,", "32 registers each"], ["q, k, g", "v", "states of tiles*"], ["states of tiles*", "o*"])],
        "One kernel; tiles hand their states to each other through device memory, one in 64 steps.",
    ),
]  # fmt: skip


def draw(stage: Stage) -> Picture:
    """Device memory on top, below it a panel for each kernel, arrows for what is read and written."""
    name = "memory/" + re.sub(r"\W", "_", stage.path)
    count = len(stage.kernels)
    width = {1: 620, 2: 720, 3: 820, 4: 900}.get(count, 1000)
    p = Picture(name, width, 402, "What lies where: " + stage.path.split("/")[-1], stage.words)
    p.box(6, 26, width - 12, 74, "paper")
    p.text(14, 18, "device memory, behind the second-level cache", "small soft")
    slot = (width - 24) / len(stage.tensors)
    middle = {}
    for i, tensor in enumerate(stage.tensors):
        label = tensor.removeprefix("+")
        lines = [label] if len(label) * 7 < slot - 16 else split(label)
        p.labelled(12 + slot * i + 5, 40, slot - 10, 46, lines, "b" if tensor.startswith("+") else "a")
        middle[label] = (12 + slot * (i + 0.5), slot - 10)
    panel = (width - 12 - 12 * (count - 1)) / count
    handed = []
    uses: dict[str, int] = {}
    for i, kernel in enumerate(stage.kernels):
        x = 6 + (panel + 12) * i
        p.box(x, 196, panel, 181, "paper")
        p.text(x + panel / 2, 393, kernel.name, "middle small bold")
        shared = bool(kernel.shared)
        if shared:
            p.text(x + panel * 0.42, 290, "shared", "small soft")
            p.labelled(x + 6, 218, panel * 0.68 - 6, 50, fitted(kernel.shared, panel * 0.68 - 14), "c")
            p.arrow((x + panel * 0.3, 268), (x + panel * 0.3, 304))
            p.arrow((x + panel * 0.38, 304), (x + panel * 0.38, 268))
        p.text(x + 8, 371, "registers", "small soft")
        p.labelled(x + 6, 304, panel - 12, 52, fitted(kernel.registers, panel - 20), "d")
        if kernel.hands_on:
            handed.append(((x + panel - 30, 304), (x + panel - 30, 243), (x + panel + 18, 243)))
        ways = [(t, False) for t in kernel.reads] + [(t, True) for t in kernel.writes]
        direct = [w for w in ways if w[0].endswith("*")]
        tiled = [w for w in ways if not w[0].endswith("*")]
        for group, low, high, y in (
            (tiled, 0.08, 0.62, 218),
            (direct, 0.74 if shared else 0.12, 0.95 if shared else 0.9, 304),
        ):
            group = sorted(group, key=lambda w: middle[w[0].removesuffix("*")][0])
            for k, (tensor, writes) in enumerate(group):
                at = x + panel * (low + (high - low) * (k + 0.5) / len(group))
                center, breadth = middle[tensor.removesuffix("*")]
                used = uses[tensor.removesuffix("*")] = uses.get(tensor.removesuffix("*"), 0) + 1
                start = center + min(0.1 * breadth, 10) * (used - 2.5 if used < 6 else 0)
                points = [(start, 86), (at, 190), (at, y)]
                p.arrow(*(reversed(points) if writes else points))
    for points in handed:  # over the panels that they lead to
        p.arrow(*points)
    return p


def split(label: str) -> list[str]:
    """A label in two lines, cut at the space next to its middle."""
    spaces = [i for i, c in enumerate(label) if c == " "]
    if not spaces:
        return [label]
    cut = min(spaces, key=lambda i: abs(i - len(label) / 2))
    return [label[:cut], label[cut + 1 :]]


def fitted(lines: list[str], width: float) -> list[str]:
    """The lines, or, if one is too long, the same words in lines that are not; at most three, which a box has room for."""
    if any(len(line) * 6.6 >= width for line in lines):
        words = " ".join(lines).replace(" KB", "\N{NO-BREAK SPACE}KB")
        lines = textwrap.wrap(words, int(width / 6.6), break_long_words=False, break_on_hyphens=False)
    assert len(lines) <= 3, f"too long for a box: {lines}"
    return lines


def all_memories() -> list[Picture]:
    return [draw(stage) for stage in STAGES]
