#pragma once
/// @file
/// A row of a chunk's 16 x 16 blocks in the accumulators of a warp (inverse.cuh), element by element and on its
/// way to memory.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/blocks.hpp"
#include "05_deltanet_wy/chunk/inverse.cuh"
#include "common/device/memory.cuh"
#include "common/device/movmatrix.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"

namespace tutorial::delta_rule {

/// Calls f(t, i, element) for each of the lane's elements of the blocks (r, 0) to (r, r). t and i are the
/// element's row and column in the chunk.
template <class F>
__device__ __forceinline__ void for_each_element(BlockRow& sums, int r, F f) {
  const int lane = int(lane_index());
#pragma unroll
  for (int c = 0; c < kBlocks; ++c) {
    if (c > r) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      f(r * kBlock + lane / 4 + i % 4 / 2 * 8, c * kBlock + i / 4 * 8 + lane % 4 * 2 + i % 2, sums[c][i / 4][i % 4]);
    }
  }
}

/// Writes the blocks (r, 0) to (r, r), rounded, as B fragments of the transposed blocks. In `sums`, the rounding errors
/// replace the elements.
/// @param blocks [10, 32], the chunk's
__device__ __forceinline__ void store_blocks(uint4* blocks, BlockRow& sums, int r) {
#pragma unroll
  for (int c = 0; c < kBlocks; ++c) {
    if (c > r) continue;
    std::uint32_t two[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float* of = &sums[c][i % 2][i / 2 * 2];
      two[i] = pack(of[0], of[1]);
      const float2 stored = unpack(two[i]);
      of[0] -= stored.x;
      of[1] -= stored.y;
    }
    store_global(blocks + lower_block(r, c) * 32 + lane_index(), make_uint4(two[0], two[1], two[2], two[3]));
  }
}

/// Writes the blocks (r, 0) to (r, r), rounded, as B fragments of the blocks themselves.
/// @param blocks [10, 32], the chunk's
__device__ __forceinline__ void store_flipped_blocks(uint4* blocks, const BlockRow& sums, int r) {
#pragma unroll
  for (int c = 0; c < kBlocks; ++c) {
    if (c > r) continue;
    std::uint32_t two[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* of = &sums[c][i / 2][i % 2 * 2];
      two[i] = transpose_8x8(pack(of[0], of[1]));
    }
    store_global(blocks + lower_block(r, c) * 32 + lane_index(), make_uint4(two[0], two[1], two[2], two[3]));
  }
}

}  // namespace tutorial::delta_rule
