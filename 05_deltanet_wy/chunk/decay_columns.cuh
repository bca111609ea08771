#pragma once
/// @file
/// Decays of what a warpgroup has in registers.

#include <cuda_runtime.h>

#include "common/device/wgmma.cuh"

namespace tutorial::delta_rule {

/// sums *= decays, each column of the thread with its own: of the transposed columns a position, of S^T a row of S.
/// @param decays of all columns, in shared memory
template <int kSums>
__device__ __forceinline__ void decay_columns(float (&sums)[kSums], const float* decays) {
#pragma unroll
  for (int i = 0; i < kSums; i += 4) {
    const float2 two = *reinterpret_cast<const float2*>(decays + wgmma_column(i));
    sums[i] *= two.x;
    sums[i + 1] *= two.y;
    sums[i + 2] *= two.x;
    sums[i + 3] *= two.y;
  }
}

}  // namespace tutorial::delta_rule
