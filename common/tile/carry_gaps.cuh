#pragma once
/// @file
/// Decays of segments that need not be carried, for heads where a state need not go from segment to segment
/// (carry_states.cuh). Where there is nothing to carry, a block ends at once.

#include <cuda_runtime.h>

#include <cstdint>

#include "common/tile/carry.cuh"

namespace tutorial::tile {

/// A kind of decay with one number for all rows, where a negative one is a gap: the state after the segment is not wanted.
/// What the segment has left is not used, and the state after it counts as zeros.
template <class Decay>
struct WithGaps : Decay {
  static constexpr bool kHasGaps = true;

  /// Whether the segments from number `first` on, `count` of them, are all gaps. All threads of the block call.
  __device__ __forceinline__ bool is_done(std::int64_t first, int count, int, int) const {
    bool is_open = false;
    for (int i = int(threadIdx.x); i < count; i += int(blockDim.x)) is_open |= this->from(first + i, 0)[0] >= 0;
    return !__syncthreads_or(is_open);
  }
};

/// A kind of decay of rows that may all be 0: then the state after a segment is the one that it has left.
template <class Decay>
struct WithZeros : Decay {
  static constexpr bool kHasGaps = false;

  /// Whether the decays of rows d to last_d are 0 in the segments from number `first` on, `count` of them. All threads of
  /// the block call.
  __device__ __forceinline__ bool is_done(std::int64_t first, int count, int d, int last_d) const {
    bool is_open = false;
    for (int i = int(threadIdx.x); i < count * (last_d - d + 1); i += int(blockDim.x)) {
      is_open |= this->from(first + i % count, d + i / count)[0] != 0;
    }
    return !__syncthreads_or(is_open);
  }
};

}  // namespace tutorial::tile
