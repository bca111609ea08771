#pragma once
/// @file
/// What a block asks of WalkedHeads.

#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/early_start.cuh"
#include "common/device/memory.cuh"
#include "common/device/walked_heads.hpp"
#include "common/device/warp.cuh"

namespace tutorial {

/// Whether all segments of a head have been walked, so that the block has nothing to do. Waits for the kernel before.
/// All lanes of a warp call it.
/// @param head of all: b H + h
__device__ __forceinline__ bool has_been_walked(const WalkedHeads& heads, int head) {
  wait_for_previous_kernel();
  if (heads.walked == nullptr) return false;
  int all = 1;
  for (int i = int(lane_index()); i < heads.segments; i += 32) {
    all &= load_for_update(heads.walked + std::int64_t(head) * heads.segments + i);
  }
  return __all_sync(kAllLanes, all);
}

}  // namespace tutorial
