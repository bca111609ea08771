#pragma once
/// @file
/// The part of a problem that a block walks. It follows from the block's place in the grid.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <source_location>

#include "common/device/early_start.cuh"
#include "common/device/launch_config.hpp"
#include "common/tile/chunk_shape.cuh"
#include "common/tile/grid.cuh"
#include "common/tile/launch_plan.hpp"
#include "common/tile/state.cuh"
#include "common/view.hpp"

namespace tutorial::tile {

/// A launch of the same blocks in another order: first those of the first segments of all heads, then those of the
/// second ones. It starts early if the plan says so (common/device/early_start.cuh). Grid (tiles, H, B x segments).
template <class Shape>
LaunchConfig launch_by_segments(const Extents& e, const LaunchPlan& plan, int threads, std::size_t shared_bytes,
                                std::source_location where = std::source_location::current()) {
  const dim3 grid((unsigned(e.Dv) - 1) / Shape::kDv + 1, unsigned(e.H), unsigned(e.B) * unsigned(plan.segments));
  LaunchConfig config(grid, threads, shared_bytes, where);
  config.starts_early = plan.starts_early;
  return config;
}

/// A launch with clusters of two blocks, which have neighbouring tiles of a head. Grid (tiles, rounded up to an even
/// number; H; B).
template <class Shape>
LaunchConfig launch_in_pairs(const Extents& e, int threads, std::size_t shared_bytes,
                             std::source_location where = std::source_location::current()) {
  dim3 grid = grid_of<Shape>(e, 1);
  grid.x += grid.x % 2;
  LaunchConfig config(grid, threads, shared_bytes, where);
  config.cluster = 2;
  return config;
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
  __device__ __forceinline__ BlockPart(const Extents& e, int length)
      : BlockPart(e, length, int(blockIdx.x), int(blockIdx.z) % e.B, int(blockIdx.z) / e.B) {}
  /// For the grid of grid_of() alone, with less to compute, or for a block whose number among the tiles and segments is
  /// not its place there.
  __device__ __forceinline__ BlockPart(const Extents& e, int length, int block)
      : BlockPart(e, length, block, int(blockIdx.z), 0) {}

  /// The state that the segment starts from, from the block's first column on. It is the initial state, or the state
  /// after the segments before, and then the function waits for the kernel before to end.
  /// @param initial [B, H, Dk, Dv]; its data is null if it is 0
  __device__ __forceinline__ ConstRows start(const View<const float>& initial, const LaunchPlan& plan,
                                             const Extents& e) const {
    if (segment > 0) {
      wait_for_previous_kernel();
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

 private:
  __device__ __forceinline__ BlockPart(const Extents& e, int length, int block, int b, int segments_before)
      : b(b), h(int(blockIdx.y)), head(b * e.H + h) {
    const int tiles = (e.Dv - 1) / Shape::kDv + 1;
    segment = block / tiles + segments_before;
    begin = segment * length;
    end = begin + min(length, e.L - begin);
    first_column = block % tiles * Shape::kDv;
    columns = min(Shape::kDv, e.Dv - first_column);
  }
};

}  // namespace tutorial::tile
