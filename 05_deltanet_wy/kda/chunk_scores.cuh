#pragma once
/// @file
/// From the scores of a chunk, in the sums of a warpgroup, to P and U = -T: what `one_anchor` and `cluster` share.

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/warpgroup_inverse.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::kda {

/// P, rounded, with zeros above the diagonal.
/// @param scores the warp's row of blocks, which is overwritten
__device__ __forceinline__ void round_scores(tile::ScoreFragments& P, delta_rule::BlockRow& scores, int warp) {
#pragma unroll
  for (int c = 0; c < delta_rule::kBlocks; ++c) {
    if (c == warp) delta_rule::for_each_of_block(scores[c], [](int t, int i, float& x) { x = i <= t ? x : 0.0f; });
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      P[c][i] = c <= warp ? pack(scores[c][i / 2][i % 2 * 2], scores[c][i / 2][i % 2 * 2 + 1]) : 0;
    }
  }
}

/// Row 3 - warp of the blocks of U. All warps have passed a barrier since they have used `blocks`.
/// @param barrier a named barrier of the warpgroup's
/// @param A the warp's row of blocks, without beta
/// @param beta of the warp's positions, in lanes 0 to 15
__device__ __forceinline__ void invert_scores(delta_rule::SplitRow& U, const delta_rule::SplitBlocks& blocks,
                                              unsigned barrier, int warp, const delta_rule::BlockRow& A, float beta) {
  const float2 beta_of_rows{__shfl_sync(kAllLanes, beta, lane_index() / 4),
                            __shfl_sync(kAllLanes, beta, lane_index() / 4 + 8)};
  delta_rule::BlockSums diagonal = {};
#pragma unroll
  for (int c = 0; c < delta_rule::kBlocks; ++c) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (c == warp) diagonal[i / 4][i % 4] = -(i % 4 / 2 ? beta_of_rows.y : beta_of_rows.x) * A[c][i / 4][i % 4];
    }
  }
  delta_rule::invert_compactly(U, blocks, barrier, warp, diagonal, A, beta);
}

}  // namespace tutorial::kda
