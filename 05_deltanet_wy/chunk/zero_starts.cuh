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
/// blocks of other kernels decide: each by itself, but from the same numbers, so they agree. A segment that may not
/// start so needs the state that the one before it leaves (segment_maps.cuh).
///
/// Source: FlashQLA, which counts gates on the host and takes an e^-10 for nothing.

#include <cuda_runtime.h>

#include "common/tile/base2.cuh"
#include "common/tile/warm_up.cuh"

namespace tutorial::delta_rule {

inline constexpr int kMostWarmUp = 8;  ///< chunks

/// How many chunks before a segment a walk from zeros has to begin; 0 if kMostWarmUp are too few.
/// @param begin the segment's first chunk
/// @param bound bound(n): that of chunk n
template <class Bound>
__device__ __forceinline__ int warm_up_of(int begin, Bound bound) {
  float bounds[kMostWarmUp], left = 1;
#pragma unroll
  for (int i = 0; i < kMostWarmUp; ++i) bounds[i] = i < begin ? bound(begin - 1 - i) : INFINITY;
  int warm_up = 0;
#pragma unroll
  for (int i = 0; i < kMostWarmUp; ++i) {
    left *= bounds[i];
    if (warm_up == 0 && left <= tile::ex2(tile::kForgotten)) warm_up = i + 1;
  }
  return warm_up;
}

}  // namespace tutorial::delta_rule
