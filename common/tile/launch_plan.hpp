#pragma once
/// @file
/// How a head is cut into blocks: its columns of Dv into tiles, its positions into segments. Functions that query the
/// GPU's multiprocessors or shared memory throw CudaError if there is no GPU.

#include <cstdint>

#include "common/view.hpp"

namespace tutorial::tile {

/// The sizes that a launch plan depends on.
struct Extents {
  int B, H, L, Dk, Dv;
};

/// The sizes of an operator's arguments.
template <class Arguments>
TUTORIAL_HOST_DEVICE Extents extents_of(const Arguments& a) {
  return {a.B, a.H, a.L, a.Dk, a.Dv};
}

/// One block walks one segment of one head with one tile of columns.
struct LaunchPlan {
  int columns = 64;  ///< of a tile: 64, or 128 if Dk <= 128
  int segments = 1;  ///< parts of the sequence that are walked at once
  int length = 0;    ///< positions of a segment: whole chunks of 64; the last segment may be shorter
  /// [B, H, segments - 1, Dk, Dv]: the states that all segments but the first start from.
  const float* starts = nullptr;
  bool starts_early = false;  ///< the walk may start before the kernels for `starts` have ended
};

/// The widest tile of this problem: 128 if Dv has at least 128 columns, the state fits into registers and the tiles
/// into this GPU's shared memory; else 64.
int widest_tile(const Extents&);
/// A plan that cuts L positions into at most this number of segments, 1 or more, of equal length; `starts` is null.
LaunchPlan make_launch_plan(int L, int columns, int segments);
/// The tile of a block that walks a head alone, 64 or 128 columns: narrow if multiprocessors would otherwise be idle.
int block_columns(const Extents&);
/// A plan with enough segments to give each multiprocessor one block, with the widest tile.
LaunchPlan one_wave(const Extents&);
/// Bytes of the segments' states.
std::int64_t launch_plan_memory(const Extents&, const LaunchPlan&);

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
