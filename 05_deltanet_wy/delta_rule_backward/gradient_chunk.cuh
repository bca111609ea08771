#pragma once
/// @file
/// What the gradients of a chunk on fragments add to common/tile/chunk_products.cuh: products of rows of positions with
/// states that lie in device memory as A fragments of their transposes, and what the walks leave for them.
///
/// All lanes of a warp call each function.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/chunk/warp_products.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/movmatrix.cuh"
#include "common/device/pack.cuh"
#include "common/tile/chunk_shape.cuh"

namespace tutorial::delta_rule {

/// Two accumulators side by side, times a factor, as an A fragment.
__device__ __forceinline__ uint4 scaled_fragment(const float (&left)[4], const float (&right)[4], float factor) {
  const auto two = [&](const float* x) { return pack(factor * x[0], factor * x[1]); };
  return make_uint4(two(left), two(left + 2), two(right), two(right + 2));
}

/// O += columns 16 j to 16 j + 15 of X [64, ...] times those of S, the warp's columns.
/// @param unit X.unit(lane % 16, lane / 16 * 8)
/// @param s a fragment of S^T for each 16 of the warp's columns
template <class Shape>
__device__ __forceinline__ void add_from_fragments(typename Shape::Output& O, const typename Shape::KeyTile& X,
                                                   int unit, int j, const uint4 (&s)[Shape::kWarpColumns / 16]) {
  constexpr int kCount = Shape::kWarpColumns / 16;
  uint4 columns[kCount];
#pragma unroll
  for (int c = 0; c < kCount; ++c) {
    columns[c] = make_uint4(transpose_8x8(s[c].x), transpose_8x8(s[c].y), transpose_8x8(s[c].z), transpose_8x8(s[c].w));
  }
#pragma unroll
  for (int t = 0; t < kBlocks; ++t) {
    std::uint32_t rows[4];
    ldmatrix_x4(rows, X.data + X.advance(unit, t * kBlock, j * 16));
#pragma unroll
    for (int c = 0; c < kCount; ++c) multiply(O[t], c, make_uint4(rows[0], rows[1], rows[2], rows[3]), columns[c]);
  }
}

/// Each row of O times its factor. @param factor factor(t), of row t
template <class Shape, class Factor>
__device__ __forceinline__ void scale_rows(typename Shape::Output& O, Factor factor) {
  const int lane = fresh_lane();
#pragma unroll
  for (int t = 0; t < kChunk / 8; ++t) {
    const float times = factor(t * 8 + lane / 4);
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 8; ++j) {
      O[t / 2][j][t % 2 * 2] *= times;
      O[t / 2][j][t % 2 * 2 + 1] *= times;
    }
  }
}

}  // namespace tutorial::delta_rule
