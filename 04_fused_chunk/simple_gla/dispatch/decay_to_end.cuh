#pragma once
/// @file
/// The decays to a chunk's end in registers, for warps that add up g for themselves.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla/scalar_gate.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"

namespace tutorial::simple_gla {

/// The decay from the start of the chunk to its end, and from each position to its end. Each lane holds two of the
/// latter.
struct DecayToEnd {
  float whole, first, second;

  /// From the chunk's b.
  __device__ __forceinline__ explicit DecayToEnd(const ChunkSums& b)
      : whole(tile::ex2(b.end)), first(tile::ex2(b.end - b.first)), second(tile::ex2(b.end - b.second)) {}

  /// The decays of the positions i + p and i + p + 1, p = 2 (lane % 4), for an even i.
  __device__ __forceinline__ float2 of_pair(int i) const {
    const int source = i / 2 + int(lane_index()) % 4;
    return make_float2(__shfl_sync(kAllLanes, first, source), __shfl_sync(kAllLanes, second, source));
  }
};

}  // namespace tutorial::simple_gla
