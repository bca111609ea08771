/// @file
/// `one_block`: a head in one block, with two chains.
///
/// Idea: with a head for every multiprocessor, nothing has to be shared between multiprocessors. A block walks with all
/// 128 columns of Dv, in two warpgroups of 64 columns. So Q, K, T and P are in shared memory once for both, and nothing
/// is pushed. A multiprocessor now has both halves of a head, so each half may take twice as long for a chunk. Its chain
/// waits for residual, Q S and v_new one after the other. While one chain waits, the tensor cores compute for the other.
///
/// Beside the chains there is room for two warpgroups. One loads and stores, and the other one computes T. Alone it is
/// too slow for that and for P, so other warps do part of the work (n is even):
///
///     two warps of warpgroup 0 | diagonal of n + 1          | diagonal of n + 2
///     warpgroup 1              | rows of T of n             | rows of T of n + 1
///     chain 0                  | n - 1             P of n   | n
///     chain 1                  | n - 1                      | n          P of n + 1
///
/// - Two warps invert the four blocks on the diagonal of I + A, two blocks each.
/// - The chains compute P: chain 0 for even chunks, chain 1 for odd ones.
///
/// Improves on: in `cluster` a head reads Q and K three times per 128 columns, and T and P of each chunk pass from one
/// multiprocessor to another. All of that takes power, which limits many heads on an H200.
/// Unchanged: what is rounded, and the order in which each sum is added up: the results are the same to the last bit.
///
/// Equation, shapes: those of `fused`, without T and P.
/// Thread mapping: block (x, h, b) walks over the chunks of a head with 128 columns of Dv. Warpgroups 2 and 3 are the
/// chains. Of warpgroup 0 one thread loads Q and K, one stores O and loads V, and warps 2 and 3 invert.
/// Synchronization: -A_cc, and later U_cc (warpgroup_inverse.cuh), lie in the place of block (c, c), in one of two sets of
/// blocks. Warpgroup 1 stores the four -A_cc (`diagonal_full`), and two warps replace them by U_cc (`diagonal_inverted`).
/// While they do, warpgroup 1 computes U of the chunk before, in the other set. K K^T of the next chunk runs between W
/// and U of this one: mma of W would otherwise wait for it. T (`T_full`) and P (`P_full`) lie in one of two slots, which
/// is free (`matrices_empty`) when both chains have read it. Outputs take the place of the values of their chunk: each
/// warp writes the columns that it has read. One thread stores a tile of outputs, and then loads the values of two
/// chunks later into it.
/// Resources: at Dk = 128 four pairs of Q and K, two of V and O, T and P of two chunks and two sets of blocks: 220 KB of
/// shared memory, one block per multiprocessor. Registers per thread: 64 for loads, stores and the diagonal, 96 for T,
/// and 176 for a chain. That is enough because residual and outputs share an array.
/// Work: 6 Dk Dv + 320 Dv operations per position on tensor cores, 256 Dk per 128 columns, and the inverse.
/// Bytes: v and o once; q and k once per 128 columns, beta twice.
/// Bound by: the steps of an inverse, and the power of an H200.
/// Requires: what `warpgroup_chain` requires.
/// Weakness: it needs a head for every multiprocessor. A chain takes longer for a chunk than in `cluster`. With Dv <= 64
/// the second chain does useless work.
/// Source: two warpgroups with half of the columns of a head each: FlashInfer's delta rule for Hopper.

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/one_block_chains.cuh"
#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/no_decays.cuh"
#include "05_deltanet_wy/delta_rule_packed/dispatch/one_block.hpp"

namespace tutorial::delta_rule {

void one_block(const Bf16Arguments& a) {
  start_one_block<NoDecays>(a, a.B);
}

void one_block_packed(const PackedBf16Arguments& p) {
  start_one_block<NoDecays>(p.all, p.all.B * p.N, list_sequences(p));
}

}  // namespace tutorial::delta_rule
