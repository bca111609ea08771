#pragma once
/// @file
/// The part of the gradients of packed sequences that a block walks: a segment in either direction, in a sequence that is
/// a problem by itself.

#include <cuda_runtime.h>

#include <cstdint>

#include "common/packed_sequences.hpp"
#include "common/tile/packed_segments.cuh"

namespace tutorial::tile {

/// A block's part. Both directions have the same segments, so that S and dS are known at the same borders.
template <class Shape>
struct PackedGradientPart : PackedPart<Shape> {
  int first, length;  ///< of the sequence: where it begins, and how many positions it has

  __device__ __forceinline__ PackedGradientPart(const Extents& e, const PackedPlan& plan,
                                                const std::int32_t* cu_seqlens)
      : PackedPart<Shape>(e, plan), first(0), length(0) {
    if (this->sequence < 0) return;
    first = load_global(cu_seqlens + this->sequence);
    length = load_global(cu_seqlens + this->sequence + 1) - first;
  }

  /// Whether there is nothing to walk: an entry that no sequence has, or an empty sequence.
  __device__ __forceinline__ bool is_empty() const { return this->begin == this->end; }
  /// The border that the walk of the segment starts from; -1: it starts where the sequence begins or ends.
  __device__ __forceinline__ int start_border(const PackedPlan& plan, bool is_from_end) const {
    if (!is_from_end) return this->start;
    return this->entry < plan.states ? this->entry : -1;
  }
  /// Whether the walk ends where the sequence ends, or from the end where it begins.
  __device__ __forceinline__ bool is_at_end(const PackedPlan& plan, bool is_from_end) const {
    return is_from_end ? this->start < 0 : this->entry >= plan.states;
  }
  /// The sequence as a problem by itself.
  template <class Arguments>
  __device__ __forceinline__ Arguments alone(const Arguments& all) const {
    return sequence_of(all, this->sequence, first, length);
  }
};

}  // namespace tutorial::tile
