#include "common/tile/walk_times.hpp"

#include <algorithm>
#include <cstdint>

#include "common/ceil_div.hpp"
#include "common/device/device.hpp"

namespace tutorial::tile {
namespace {

constexpr int kChunkLength = 64;
constexpr double kTwoMoreLaunches = 6;  // microseconds
constexpr double kCarryStep = 0.1;      // microseconds per segment
constexpr double kStateBytesPerMicrosecond = 3.5e6;
constexpr int kStateTrips = 3;  // of four, one overlaps a walk

/// The fastest plan with tiles of at most this number of columns.
template <class Times>
LaunchPlan fastest(const Extents& e, const Times& times, int most_columns) {
  LaunchPlan best;
  double least = 0;
  for (const int columns : {64, 128}) {
    if (columns > most_columns) continue;
    const std::int64_t blocks = std::int64_t(e.B) * e.H * ceil_div(e.Dv, columns);
    const int most = int(std::clamp<std::int64_t>(2 * multiprocessor_count() / blocks, 1, ceil_div(e.L, kChunkLength)));
    for (int segments = 1; segments <= most; ++segments) {
      const LaunchPlan plan = make_launch_plan(e.L, columns, segments);
      const double time = estimated_time(e, times, plan);
      if (best.length == 0 || time < least) best = plan, least = time;
    }
  }
  return best;
}

/// Blocks that a multiprocessor has at a time: by their registers at most `most`, and by their shared memory, of which a
/// walk needs two sets of Q, K and V, the scores, and what the system takes.
int resident_blocks(const Extents& e, int columns, int most) {
  if (e.Dk > 128) return 1;
  const int width = e.Dk <= 64 ? 64 : 128;
  const int bytes = (2 * (2 * width + columns) + kChunkLength) * kChunkLength * 2 + 1024;
  return std::clamp(shared_memory_per_multiprocessor() / bytes, 1, most);
}

}  // namespace

double estimated_time(const Extents& e, const WalkTimes& times, const LaunchPlan& plan) {
  const int multiprocessors = multiprocessor_count(), resident = resident_blocks(e, plan.columns, times.resident);
  const std::int64_t blocks = std::int64_t(e.B) * e.H * ceil_div(e.Dv, plan.columns) * plan.segments;
  const double rounds = ceil_div(blocks, resident * multiprocessors);
  const bool alone = blocks <= multiprocessors || resident == 1;
  const double chunks = rounds * (plan.length / kChunkLength) * (0.3 + 0.7 * e.Dk / 128);
  const TileTimes& tile = plan.columns == 64 ? times.narrow : times.wide;
  double time = chunks * (alone ? tile.walk.alone : tile.walk.shared);
  if (plan.segments > 1) {
    time += chunks * (alone ? tile.states.alone : tile.states.shared) + kTwoMoreLaunches + kCarryStep * plan.segments +
            kStateTrips * double(launch_plan_memory(e, plan)) / kStateBytesPerMicrosecond;
  }
  return time;
}

double estimated_time(const Extents& e, const ExclusiveWalkTimes& times, const LaunchPlan& plan) {
  const int multiprocessors = multiprocessor_count();
  const int tiles = ceil_div(e.Dv, plan.columns);
  const double width = 0.3 + 0.7 * e.Dk / 128, chunks = plan.length / kChunkLength;
  // Blocks of one head read the same keys at about the same time, so the memory delivers them only once.
  const double key_bytes = 2.0 * kChunkLength * e.Dk / tiles,
               value_bytes = 2.0 * kChunkLength * std::min(e.Dv, plan.columns);
  // The time of chunks of `blocks` blocks, `resident` of which run on a multiprocessor at a time.
  const auto time_of = [&](std::int64_t blocks, int resident, double alone, double bytes) {
    const std::int64_t most = std::int64_t(resident) * multiprocessors;
    const double rounds = double(ceil_div(blocks, most)), active = double(std::min(blocks, most));
    return rounds * chunks * std::max(alone * width, active * bytes / times.bytes_per_microsecond);
  };
  const std::int64_t heads = std::int64_t(e.B) * e.H;
  double time = time_of(heads * tiles * plan.segments, 1, times.walk, 2 * (key_bytes + value_bytes));
  if (plan.segments > 1) {
    time += time_of(heads * tiles * (plan.segments - 1), 2, times.states, key_bytes + value_bytes) + kTwoMoreLaunches +
            kCarryStep * plan.segments + kStateTrips * double(launch_plan_memory(e, plan)) / kStateBytesPerMicrosecond;
  }
  return time;
}

LaunchPlan fastest_launch_plan(const Extents& e, const WalkTimes& times, int most_columns) {
  return fastest(e, times, most_columns ? most_columns : widest_tile(e));
}

LaunchPlan fastest_launch_plan(const Extents& e, const ExclusiveWalkTimes& times) {
  return fastest(e, times, 64);
}

}  // namespace tutorial::tile
