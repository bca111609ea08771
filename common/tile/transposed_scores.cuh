#pragma once
/// @file
/// The product with the scores of a chunk in the gradients, where a position reads those after it. See
/// column_products.cuh.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/ldmatrix.cuh"
#include "common/device/mma.cuh"
#include "common/tile/chunk_threads.cuh"

namespace tutorial::tile {

/// O += P^T V, the warp's columns, where the stored P is already masked: row t of O gets row i of V for i >= t.
template <class Shape>
__device__ __forceinline__ void add_from_transposed_scores(typename Shape::Output& O,
                                                           const typename Shape::ScoreTile& P,
                                                           const typename Shape::ValueTile& V) {
  const int lane = fresh_lane(), first_column = warp_index() * Shape::kWarpColumns;
  const int p_unit = P.unit(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
  const int v_unit = V.unit(lane % 16, first_column + lane / 16 * 8);
#pragma unroll
  for (int i = 0; i < kChunk / 16; ++i) {
    std::uint32_t v[Shape::kWarpColumns / 16][4];
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
      ldmatrix_x4_trans(v[j], V.data + V.advance(v_unit, i * 16, j * 16));
    }
#pragma unroll
    for (int t = 0; t <= i; ++t) {
      std::uint32_t p[4];
      ldmatrix_x4_trans(p, P.data + P.advance(p_unit, i * 16, t * 16));
#pragma unroll
      for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
        mma_m16n8k16(O[t][2 * j], p, {v[j][0], v[j][1]});
        mma_m16n8k16(O[t][2 * j + 1], p, {v[j][2], v[j][3]});
      }
    }
  }
}

}  // namespace tutorial::tile
