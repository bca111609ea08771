#pragma once
/// @file
/// A state in the registers of a block (chunk_threads.cuh): loaded, stored (load_state.cuh) and decayed.

#include "common/tile/chunk_shape.cuh"
#include "common/tile/load_state.cuh"

namespace tutorial::tile {

/// S *= factor.
template <class Shape>
__device__ __forceinline__ void scale_state(typename Shape::State& S, float factor) {
#pragma unroll
  for (auto& tiles : S) {
#pragma unroll
    for (auto& tile : tiles) {
#pragma unroll
      for (float& element : tile) element *= factor;
    }
  }
}

/// S = diag(decay) S, the warp's columns. decay(d) gives those of rows d and d + 1; d is even.
template <class Shape, class Decay>
__device__ __forceinline__ void decay_rows(typename Shape::State& S, Decay decay) {
  const int lane = fresh_lane();
#pragma unroll
  for (int d = 0; d < Shape::kDk / 8; ++d) {
    const float2 two = decay(d * 8 + lane % 4 * 2);
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
      S[j][d][0] *= two.x;
      S[j][d][1] *= two.y;
      S[j][d][2] *= two.x;
      S[j][d][3] *= two.y;
    }
  }
}

}  // namespace tutorial::tile
