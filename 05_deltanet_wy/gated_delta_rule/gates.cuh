#pragma once
/// @file
/// The gates of a chunk in the registers of a warp.

#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"

namespace tutorial::gated_delta_rule {

/// The gates of a chunk, as a warp has them: of two neighbouring positions per lane, to base 2.
struct Gates {
  float first, second;

  /// The first one's position in a chunk.
  static __device__ __forceinline__ int position() { return 2 * int(lane_index()); }
  /// Those of a chunk. prepare_gated.cuh says why no gate is taken as less than 2^-127.
  /// @param g of position() @param left how many positions are left from the chunk's first one on
  __device__ __forceinline__ void load(const float* g, std::int64_t stride, int left) {
    first = position() < left ? load_global(g) : 0.0f;
    second = position() + 1 < left ? load_global(g + stride) : 0.0f;
  }
  /// Their running sums.
  __device__ __forceinline__ Gates sums() const {
    constexpr float kStrongest = -127;
    const float x = max(tile::base2(first), kStrongest), y = max(tile::base2(second), kStrongest);
    const float sum = warp_prefix_sum(x + y);
    return {sum - y, sum};
  }
};

}  // namespace tutorial::gated_delta_rule
