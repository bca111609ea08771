#pragma once
/// @file
/// The direction of a walk over chunks. A walk counts positions t in the order in which it reaches them. Its direction
/// says where in the sequence their chunk lies. Segments are cut in the order of the walk. A walk from the end counts
/// whole chunks: it begins with the last chunk, which may be shorter and whose missing rows are zeros.

#include <cuda_runtime.h>

#include "common/device/mbarrier.cuh"

namespace tutorial::linear_attention {
namespace {

/// The direction of the operator itself: each position reads those before it.
struct Forwards {
  static constexpr bool kHasNeighbours = false;  ///< whether other sequences follow without a gap
  /// Whether each position reads those after it.
  static __device__ __forceinline__ constexpr bool is_reversed() { return false; }
  /// The first position of the chunk that the walk reaches at t.
  static __device__ __forceinline__ int position(int t) { return t; }
  /// The number of rows of that chunk, or more, if the segment ends at `end`.
  static __device__ __forceinline__ int rows(int t, int end, int) { return end - t; }
};

/// Forwards in a sequence that others follow: what a tile has beyond its end must become zeros.
struct ForwardsInSequence : Forwards {
  static constexpr bool kHasNeighbours = true;
  Barrier* arrived;  ///< of one arrival, for the bytes of the last chunk, which are not ready to be used yet
};

/// The direction of a gradient, known only when the kernel runs.
struct EitherWay {
  static constexpr bool kHasNeighbours = false;
  bool reversed;
  int last;  ///< where the last chunk begins

  /// As Forwards::is_reversed().
  __device__ __forceinline__ bool is_reversed() const { return reversed; }
  /// As Forwards::position().
  __device__ __forceinline__ int position(int t) const { return reversed ? last - t : t; }
  /// As Forwards::rows().
  __device__ __forceinline__ int rows(int t, int, int L) const { return L - position(t); }
};

}  // namespace
}  // namespace tutorial::linear_attention
