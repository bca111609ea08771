#pragma once
/// @file
/// Which launch plan is the fastest, from the times that a block takes for a chunk. The functions query the GPU's
/// multiprocessors and shared memory, and throw CudaError if there is no GPU.

#include "common/tile/launch_plan.hpp"

namespace tutorial::tile {

/// Microseconds that a block takes for a chunk, for Dk = 128: alone on its multiprocessor, and together with another
/// block. The latter is unused if a multiprocessor has one block at a time.
struct ChunkTime {
  double alone, shared = 0;
};
/// The times of a walk, and of the kernel before it that computes the segments' states.
struct TileTimes {
  ChunkTime walk, states;
};
/// The times with tiles of 64 columns and of 128.
struct WalkTimes {
  TileTimes narrow, wide;
  int resident = 2;  ///< blocks of a multiprocessor at most, if Dk <= 128 and their shared memory suffices
};
/// The same for kernels with tiles of 64 columns, of which a multiprocessor has one block at a time. Microseconds per
/// chunk for Dk = 128, as long as the memory keeps up.
struct ExclusiveWalkTimes {
  double walk;                   ///< a chunk of the walk
  double states;                 ///< a chunk of the kernel before it, of which a multiprocessor has two blocks
  double bytes_per_microsecond;  ///< that the memory delivers
};

/// The estimated time of a plan, in microseconds.
double estimated_time(const Extents&, const WalkTimes&, const LaunchPlan&);
/// The same.
double estimated_time(const Extents&, const ExclusiveWalkTimes&, const LaunchPlan&);
/// The plan with the least estimated time.
/// @param most_columns of a tile; 0: those of widest_tile(), which expects more shared memory than some kernels need
LaunchPlan fastest_launch_plan(const Extents&, const WalkTimes&, int most_columns = 0);
/// The same, with tiles of 64 columns.
LaunchPlan fastest_launch_plan(const Extents&, const ExclusiveWalkTimes&);

}  // namespace tutorial::tile
