#pragma once
/// @file
/// Segments that need no past. A segment's walk may begin with a state of zeros, a few chunks before its first
/// output, if those chunks leave almost nothing of what was there before them:
///
///     segment m - 1  ... | chunk | chunk | chunk |
///     segment m                  | warm-up ..... | outputs ...       starts from zeros
///
/// A chunk turns S into M S + H. Its *bound* is at least the length to which M can stretch a vector of length 1, so
/// after the warm-up at most the product of the bounds of its chunks is left of S. Where that is at most 2^-24, as much
/// as fp32 loses when it rounds, S may as well be 0. The kernel that prepares the chunks computes their bounds, and the
/// blocks of the walk decide: each by itself, but from the same numbers, so they agree. A segment that may not start so
/// is walked by the block of the segment before it. Then a head that never forgets is one walk, as without segments.
///
/// Source: FlashQLA, which counts gates on the host and takes an e^-10 for nothing.

#include <cuda_runtime.h>

#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/warm_up.cuh"

namespace tutorial::delta_rule {

inline constexpr int kMostWarmUp = 8;  ///< chunks

/// The chunks that a block walks, from zeros unless it starts with chunk 0. It has no outputs before `begin`. If it has
/// none at all, all three are 0.
struct WalkedChunks {
  int first, begin, end;
};

/// What the block of a segment walks. All lanes of a warp call it; lane i looks at the segments `segment` + i, + i +
/// 32, ...
/// @param length chunks of a segment
/// @param chunks of the head
/// @param bound bound(n): that of chunk n
template <class Bound>
__device__ __forceinline__ WalkedChunks find_walk(int segment, int length, int chunks, Bound bound) {
  WalkedChunks walk{segment * length, segment * length, chunks};
  const int lane = int(lane_index());
  for (int first = segment; first * length < chunks; first += 32) {
    const int begin = (first + lane) * length;
    float bounds[kMostWarmUp], left = 1;
#pragma unroll
    for (int i = 0; i < kMostWarmUp; ++i) bounds[i] = begin < chunks && i < begin ? bound(begin - 1 - i) : INFINITY;
    int warm_up = 0;
#pragma unroll
    for (int i = 0; i < kMostWarmUp; ++i) {
      left *= bounds[i];
      if (warm_up == 0 && left <= tile::ex2(tile::kForgotten)) warm_up = i + 1;
    }
    unsigned may_start = __ballot_sync(kAllLanes, warm_up > 0);
    if (first == segment) {
      if (segment > 0 && may_start % 2 == 0) return {0, 0, 0};
      walk.first -= __shfl_sync(kAllLanes, warm_up, 0);
      may_start &= ~1u;
    }
    if (may_start == 0) continue;
    walk.end = (first + __ffs(int(may_start)) - 1) * length;
    break;
  }
  return walk;
}

}  // namespace tutorial::delta_rule
