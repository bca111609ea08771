#pragma once
/// @file
/// Moves a warp's columns of a state between registers and device memory.

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/fragments.cuh"
#include "common/view.hpp"

namespace tutorial::delta_rule {

/// Calls f(element, address) for each element that the lane has of a state in device memory, S^T[g][p, p + 1],
/// and that exists.
/// @param first_column the warp's, of the state
template <int kDk, class Float, class F>
__device__ __forceinline__ void for_each_element(WarpState<kDk>& S, const View<Float>& state, int b, int h, int Dk,
                                                 int first_column, int Dv, F f) {
  const int lane = tile::fresh_lane();
  Float* row = state.row(b, h, lane % 4 * 2) + first_column + lane / 4;
#pragma unroll
  for (int d = 0; d < kDk; d += 8) {
    if (d < Dk && first_column < Dv) {  // both widths are multiples of 16
#pragma unroll
      for (int i = 0; i < 4; ++i) f(S[d / 8][i], row + i % 2 * state.stride_l + i / 2 * 8);
    }
    row += 8 * state.stride_l;
  }
}

}  // namespace tutorial::delta_rule
