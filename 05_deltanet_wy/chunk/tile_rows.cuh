#pragma once
/// @file
/// A row of a chunk's 16 x 16 blocks on its way to memory as rows of 64, for bulk copies (block_rows.cuh writes
/// fragments).

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/inverse.cuh"
#include "common/device/memory.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/tile/chunk_shape.cuh"

namespace tutorial::delta_rule {

/// Element i of lane j goes to element j of lane i, among four neighbouring lanes.
__device__ __forceinline__ void transpose_in_quad(std::uint32_t (&x)[4]) {
  const int lane = int(lane_index());
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2) {
    const bool gives_first = lane & distance;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & distance) continue;
      std::uint32_t& first = x[i];
      std::uint32_t& second = x[i + distance];
      const std::uint32_t got = __shfl_xor_sync(kAllLanes, gives_first ? first : second, distance);
      (gives_first ? first : second) = got;
    }
  }
}

/// Writes row r of the blocks, rounded, as 16 rows of 64, with zeros to the right of the diagonal's block. In `sums`,
/// the rounding errors replace the elements.
/// @param rows [64, 64], the chunk's
__device__ __forceinline__ void store_rows(__nv_bfloat16* rows, BlockRow& sums, int r) {
  const int lane = int(lane_index());
  rows += (r * kBlock + lane / 4 + lane % 2 * 8) * tile::kChunk + lane / 2 % 2 * 8;
#pragma unroll
  for (int c = 0; c < kBlocks; ++c) {
    std::uint32_t two[4] = {};
    if (c <= r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float* of = &sums[c][i / 2][i % 2 * 2];
        two[i] = pack(of[0], of[1]);
        const float2 stored = unpack(two[i]);
        of[0] -= stored.x;
        of[1] -= stored.y;
      }
      transpose_in_quad(two);  // then a lane has 8 neighbours of a row
    }
    store_global(reinterpret_cast<uint4*>(rows + c * kBlock), make_uint4(two[0], two[1], two[2], two[3]));
  }
}

}  // namespace tutorial::delta_rule
