#pragma once
/// @file
/// A state in the registers of a block (chunk_threads.cuh) whose rows decay, each with a gate of its own.

#include "common/tile/chunk_shape.cuh"

namespace tutorial::tile {

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
