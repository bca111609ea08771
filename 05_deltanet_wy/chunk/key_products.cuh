#pragma once
/// @file
/// X K^T of a chunk, on and below the diagonal, in rows of 16 x 16 blocks.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/inverse.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/mma.cuh"
#include "common/device/warp.cuh"
#include "common/tile/swizzled_tile.cuh"

namespace tutorial::delta_rule {

/// sums = the blocks (r, 0) to (r, r) of X K^T. One warp computes them.
template <int kDk>
__device__ __forceinline__ void products_with_keys(BlockRow& sums, const tile::SwizzledTile<kDk>& X,
                                                   const tile::SwizzledTile<kDk>& K, int r) {
  const int lane = int(lane_index());
  const int x_unit = X.unit(r * kBlock + lane % 16, lane / 16 * 8);
  const int k_unit = K.unit(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
#pragma unroll
  for (int d = 0; d < kDk; d += 16) {
    std::uint32_t x[4];
    ldmatrix_x4(x, X.data + X.advance(x_unit, 0, d));
#pragma unroll
    for (int c = 0; c < kBlocks; ++c) {
      if (c > r) continue;
      std::uint32_t k[4];
      ldmatrix_x4(k, K.data + K.advance(k_unit, c * kBlock, d));
      mma_m16n8k16(sums[c][0], x, {k[0], k[1]});
      mma_m16n8k16(sums[c][1], x, {k[2], k[3]});
    }
  }
}

}  // namespace tutorial::delta_rule
