#pragma once
/// @file
/// The decays of a head's chunks on their way to shared memory.

#include <cuda_runtime.h>

#include "05_deltanet_wy/gated_delta_rule/prepare_gated.hpp"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"

namespace tutorial::gated_delta_rule {

/// A warp brings them: two of each row per lane, loaded one chunk before they are stored. The kernel before may have
/// written them, if the warp has waited for it.
class ChunkDecays {
 public:
  /// @param of_head [N, kDecayRows, 64]
  /// @param first,end the chunks
  __device__ __forceinline__ ChunkDecays(const float* of_head, int first, int end)
      : from_(reinterpret_cast<const float2*>(of_head) + lane_index()), chunk_(first), end_(end) {
    load();
  }
  /// Stores those of the next chunk, and starts to load those after it.
  /// @param decays [kDecays] in shared memory
  __device__ __forceinline__ void store(float* decays) {
    auto* to = reinterpret_cast<float2*>(decays) + lane_index();
#pragma unroll
    for (int row = 0; row < kDecayRows; ++row) to[row * 32] = next_[row];
    if (++chunk_ < end_) load();
  }

 private:
  __device__ __forceinline__ void load() {
#pragma unroll
    for (int row = 0; row < kDecayRows; ++row) next_[row] = load_for_update(from_ + chunk_ * (kDecays / 2) + row * 32);
  }

  const float2* from_;
  int chunk_, end_;
  float2 next_[kDecayRows];
};

}  // namespace tutorial::gated_delta_rule
