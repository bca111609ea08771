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

/// A kind of decay where a negative number is a gap: the state after the segment is not wanted. What the segment has left
/// is not used, and the state after it counts as zeros.
template <class Decay>
struct WithGaps : Decay {
  /// Whether the segments from number `first` on, `count` of them, are all gaps. All threads of the block call.
  __device__ __forceinline__ bool is_all_gaps(std::int64_t first, int count) const {
    bool is_any = false;
    for (int i = int(threadIdx.x); i < count; i += int(blockDim.x)) is_any |= this->from(first + i, 0)[0] >= 0;
    return !__syncthreads_or(is_any);
  }
};

}  // namespace tutorial::tile
