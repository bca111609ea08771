#pragma once
/// @file
/// The part of a problem that a block walks. It follows from the block's place in the grid.

#include <cuda_runtime.h>

#include <cstdint>

#include "common/tile/chunk_shape.cuh"
#include "common/tile/launch_plan.hpp"
#include "common/tile/state.cuh"
#include "common/view.hpp"

namespace tutorial::tile {

/// The grid of a kernel whose blocks each have one tile of Dv of one segment: (tiles x segments, H, B).
template <class Shape>
dim3 grid_of(const Extents& e, int segments) {
  return dim3((unsigned(e.Dv - 1) / Shape::kDv + 1) * unsigned(segments), unsigned(e.H), unsigned(e.B));
}

/// The same blocks in another order: first those of the first segments of all heads, then those of the second ones.
/// Grid (tiles, H, B x segments).
template <class Shape>
dim3 grid_by_segment(const Extents& e, int segments) {
  return dim3(unsigned(e.Dv - 1) / Shape::kDv + 1, unsigned(e.H), unsigned(e.B) * unsigned(segments));
}

/// Rows of a matrix, `stride` elements apart; data is null if all elements are 0.
struct ConstRows {
  const float* data;
  std::int64_t stride;
};

/// A block's head, segment and columns in such grids.
template <class Shape>
struct BlockPart {
  int b, h, head;             ///< batch entry, head of it, head of all: b H + h
  int segment;                ///< number of the segment
  int begin, end;             ///< its positions
  int first_column, columns;  ///< the columns of Dv that exist, up to Shape::kDv

  /// @param length positions of a segment
  __device__ __forceinline__ BlockPart(const Extents& e, int length) : BlockPart(e, length, int(blockIdx.x)) {}
  /// The same if a block's number among the tiles and segments is not its place in the grid.
  __device__ __forceinline__ BlockPart(const Extents& e, int length, int block)
      : b(int(blockIdx.z) % e.B), h(int(blockIdx.y)), head(b * e.H + h) {
    const int tiles = (e.Dv - 1) / Shape::kDv + 1;
    segment = block / tiles + int(blockIdx.z) / e.B;
    begin = segment * length;
    end = begin + min(length, e.L - begin);
    first_column = block % tiles * Shape::kDv;
    columns = min(Shape::kDv, e.Dv - first_column);
  }

  /// The state that the segment starts from, from the block's first column on. It is the initial state, or the state
  /// after the segments before.
  /// @param initial [B, H, Dk, Dv]; its data is null if it is 0
  __device__ __forceinline__ ConstRows start(const View<const float>& initial, const LaunchPlan& plan,
                                             const Extents& e) const {
    if (segment > 0) {
      const std::int64_t number = (std::int64_t(b) * e.H + h) * (plan.segments - 1) + segment - 1;
      return {plan.starts + number * e.Dk * e.Dv + first_column, e.Dv};
    }
    return {initial.data ? initial.row(b, h, 0) + first_column : nullptr, initial.stride_l};
  }

  /// Loads that state into S.
  __device__ __forceinline__ void load_start(typename Shape::State& S, const View<const float>& initial,
                                             const LaunchPlan& plan, const Extents& e) const {
    const ConstRows rows = start(initial, plan, e);
    load_state<Shape>(S, rows.data, rows.stride, e.Dk, columns);
  }
};

}  // namespace tutorial::tile
