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

/// Calls f(head, n) for the block's share of the chunks of all heads that have not been walked. A block that finds none
/// has looked at 32 heads at once, and a grid of few blocks does so in the time of one. Waits for the kernel before. All
/// threads of the block call it.
/// @param count heads @param N chunks of each
template <class F>
__device__ __forceinline__ void for_each_chunk_left(const WalkedHeads& heads, int count, int N, F f) {
  wait_for_previous_kernel();
  int n = int(blockIdx.x);  // the block's next chunk, from the first one of a head
  for (int first = 0; first < count; first += 32) {
    const int* walked = heads.walked + std::int64_t(first) * heads.segments;
    unsigned of_lane = 0;  // one bit for each head that is left
    for (int i = int(lane_index()); i < min(count - first, 32) * heads.segments; i += 32) {
      if (!load_for_update(walked + i)) of_lane |= 1u << i / heads.segments;
    }
    for (unsigned left = __reduce_or_sync(kAllLanes, of_lane); left != 0; left &= left - 1) {
      for (; n < N; n += int(gridDim.x)) f(first + __ffs(int(left)) - 1, n);
      n -= N;
    }
  }
}

}  // namespace tutorial
