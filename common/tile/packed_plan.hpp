#pragma once
/// @file
/// How packed sequences are spread over the GPU. The host knows how many sequences there are and how long they are
/// together, but not how long each is: that stands in device memory.

#include <cuda_runtime.h>

#include <cstdint>

#include "common/tile/extents.hpp"

namespace tutorial::tile {

/// Sequences are cut into segments of `length` positions; the last segment of each has what remains, which is nothing for
/// an empty sequence. One block walks one segment of one head with one tile of columns.
struct PackedPlan {
  int columns;                ///< of a tile: 64 or 128
  int length;                 ///< whole chunks of 64
  int states;                 ///< more than all segments that another one follows
  int sequences;              ///< N: each has one last segment
  const int4* segments = {};  ///< [states + N], see list_segments(); in device memory
  const float* starts = {};   ///< [states, H, Dk, Dv]: the state after each segment that another one follows

  /// Entries of `segments`.
  TUTORIAL_HOST_DEVICE int entries() const { return states + sequences; }
};

/// The plan in which no block walks more than its share of all positions, as far as chunks allow; without `segments`.
/// @throws CudaError if there is no GPU
PackedPlan packed_plan(const Extents&, int sequences);
/// The same with tiles of this width and segments of at least this length.
PackedPlan packed_plan(const Extents&, int sequences, int columns, int shortest);
/// Bytes of the list and of the states.
std::int64_t packed_plan_memory(const Extents&, const PackedPlan&);
/// Why a grid does not hold the plan's blocks; empty if it does.
const char* packed_plan_unsupported(const Extents&, const PackedPlan&);

}  // namespace tutorial::tile
