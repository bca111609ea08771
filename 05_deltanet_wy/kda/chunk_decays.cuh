#pragma once
/// @file
/// The decays of a head's chunks on their way to shared memory.

#include <cuda_runtime.h>

#include "common/device/memory.cuh"
#include "common/device/warp.cuh"

namespace tutorial::kda {

/// A warp brings them: four per lane, one chunk ahead of the bulk copies. The kernel before may have written them, if
/// the warp has waited for it.
template <int kDk>
class ChunkDecays {
 public:
  /// @param of_head [N, Dk]
  __device__ __forceinline__ ChunkDecays(const float* of_head, int N, int Dk)
      : column_(int(lane_index()) * 4), left_(N), stride_(Dk), from_(of_head + column_) {
    load();
  }
  /// Stores those of the next chunk, and starts to load those after it.
  /// @param decays [kDk] in shared memory
  __device__ __forceinline__ void store(float* decays) {
    if (column_ < kDk) *reinterpret_cast<float4*>(decays + column_) = next_;
    from_ += stride_;
    if (--left_ > 0) load();
  }

 private:
  __device__ __forceinline__ void load() {
    if (column_ < stride_) next_ = load_for_update(reinterpret_cast<const float4*>(from_));
  }

  int column_, left_, stride_;
  const float* from_;
  float4 next_{};
};

}  // namespace tutorial::kda
