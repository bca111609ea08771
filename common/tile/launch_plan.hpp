#pragma once
/// @file
/// How a head is cut into blocks: its columns of Dv into tiles (block_columns.hpp), its positions into segments.
/// Functions that query the GPU's multiprocessors or shared memory throw CudaError if there is no GPU.

#include <cstdint>

#include "common/tile/block_columns.hpp"
#include "common/tile/extents.hpp"

namespace tutorial::tile {

/// One block walks one segment of one head with one tile of columns.
struct LaunchPlan {
  int columns = 64;  ///< of a tile: 64, or 128 if Dk <= 128
  int segments = 1;  ///< parts of the sequence that are walked at once
  int length = 0;    ///< positions of a segment: whole chunks of 64; the last segment may be shorter
  /// [B, H, segments - 1, Dk, Dv]: the states that all segments but the first start from.
  const float* starts = nullptr;
  /// The walk may start before the kernels for `starts` have ended. `fill` is where the compiler would leave what lay there
  /// before, such as an address of another device.
  bool starts_early = false, fill[7] = {};
};

/// A plan that cuts L positions into at most this number of segments, 1 or more, of equal length; `starts` is null.
LaunchPlan make_launch_plan(int L, int columns, int segments);
/// A plan with enough segments to give each multiprocessor one block, with the widest tile.
LaunchPlan one_wave(const Extents&);
/// Bytes of the segments' states.
std::int64_t launch_plan_memory(const Extents&, const LaunchPlan&);

}  // namespace tutorial::tile
