#pragma once
/// @file
/// Which launch plan of a walk is the fastest on the card at hand (card.hpp), from the clocks that a block takes for a
/// chunk. The functions throw CudaError if there is no GPU.

#include "common/tile/launch_plan.hpp"

namespace tutorial::estimate {

/// Clocks that a block takes for a chunk, for Dk = 128: alone on its multiprocessor, and together with another block. The
/// latter is unused if a multiprocessor has one block at a time.
struct ChunkClocks {
  double alone, shared = 0;
};
/// Those of a walk, and of the kernel before it that computes the segments' states.
struct TileClocks {
  ChunkClocks walk, states;
};
/// Those with tiles of 64 columns and of 128.
struct WalkClocks {
  TileClocks narrow, wide;
  int resident = 2;  ///< blocks of a multiprocessor at most, if Dk <= 128 and their shared memory suffices
};
/// The same for kernels with tiles of 64 columns, of which a multiprocessor has one block at a time. The clocks hold as
/// long as the memory keeps up.
struct ExclusiveWalkClocks {
  double walk;         ///< a chunk of the walk
  double states;       ///< a chunk of the kernel before it, of which a multiprocessor has two blocks
  double bytes_speed;  ///< at which the bytes come, as a multiple of a copy's speed: some come from the cache
};

/// The estimated time of a plan, in microseconds.
double walk_time(const tile::Extents&, const WalkClocks&, const tile::LaunchPlan&);
/// The same.
double walk_time(const tile::Extents&, const ExclusiveWalkClocks&, const tile::LaunchPlan&);
/// The plan with the least estimated time.
/// @param most_columns of a tile; 0: those of widest_tile(), which expects more shared memory than some kernels need
tile::LaunchPlan fastest_plan(const tile::Extents&, const WalkClocks&, int most_columns = 0);
/// The same, with tiles of 64 columns.
tile::LaunchPlan fastest_plan(const tile::Extents&, const ExclusiveWalkClocks&);

}  // namespace tutorial::estimate
