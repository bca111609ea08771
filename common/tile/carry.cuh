#pragma once
/// @file
/// Carries states that decay from segment to segment (carry_states.cuh).

#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/memory.cuh"
#include "common/tile/carried_bytes.hpp"
#include "common/tile/carry_states.cuh"

namespace tutorial::tile {

/// One decay per segment and row of the state, stored as kFactors factors: [B, H, count, kFactors, Dk].
template <int kFactors>
struct RowDecay {
  const float* decays;
  int Dk;

  struct Decays {
    const float* first;
    int stride;
    __device__ __forceinline__ float operator[](int i) const {
      float decay = 1;
#pragma unroll
      for (int factor = 0; factor < kFactors; ++factor) {
        decay *= load_for_update(first + (i * kFactors + factor) * stride);  // after the wait for the kernel before
      }
      return decay;
    }
    __device__ __forceinline__ void next(int segments) {
      first += segments * kFactors * stride;
    }
  };
  /// The decays of row d, from segment `first` on.
  __device__ __forceinline__ Decays from(std::int64_t first, int d) const {
    return {decays + first * kFactors * Dk + d, Dk};
  }
};

/// One decay per segment, [B, H, count].
struct SegmentDecay {
  const float* decays;

  /// The decays of any row, from segment `first` on.
  __device__ __forceinline__ RowDecay<1>::Decays from(std::int64_t first, int) const { return {decays + first, 1}; }
};

}  // namespace tutorial::tile
