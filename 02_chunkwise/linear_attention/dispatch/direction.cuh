#pragma once
/// @file
/// The direction of a walk over chunks. A walk counts positions t in the order in which it comes to them, and asks its
/// direction where their chunk lies. Its segments are cut in that order. A walk from the end counts whole chunks: it
/// begins with the one that may be shorter, whose missing rows are zeros.

#include <cuda_runtime.h>

namespace tutorial::linear_attention {
namespace {

/// The direction of the operator itself: each position reads those before it.
struct Forwards {
  /// Whether each position reads those after it.
  static __device__ __forceinline__ constexpr bool is_reversed() { return false; }
  /// Where the chunk lies to which the walk comes at t.
  static __device__ __forceinline__ int position(int t) { return t; }
  /// Rows of that chunk, or more, where the segment ends at `end`.
  static __device__ __forceinline__ int rows(int t, int end, int) { return end - t; }
};

/// That of a gradient, known when the kernel runs.
struct EitherWay {
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
