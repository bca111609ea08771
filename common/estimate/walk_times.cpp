#include "common/estimate/walk_times.hpp"

#include <algorithm>
#include <cstdint>

#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/estimate/card.hpp"

namespace tutorial::estimate {
namespace {

using tile::Extents, tile::LaunchPlan;

constexpr int kChunkLength = 64;
constexpr double kTwoMoreLaunches = 6;  // microseconds, which the host and the driver take on any card
constexpr double kCarryClocks = 200;    // for each segment
constexpr double kStateSpeed = 0.83;    // of a copy's
constexpr int kStateTrips = 3;          // of four, one overlaps a walk

/// The share of a chunk's clocks that a width takes, where 128 take all.
double share_of(int Dk) {
  return 0.3 + 0.7 * Dk / 128;
}

/// What segments cost beside the kernel that computes their states.
double carry_time(const Extents& e, const LaunchPlan& plan, const Card& card) {
  return kTwoMoreLaunches + card.microseconds(kCarryClocks * plan.segments) +
         card.transfer(kStateTrips * double(launch_plan_memory(e, plan)), kStateSpeed);
}

/// The fastest plan with tiles of at most this number of columns.
template <class Clocks>
LaunchPlan fastest(const Extents& e, const Clocks& clocks, int most_columns) {
  LaunchPlan best;
  double least = 0;
  for (const int columns : {64, 128}) {
    if (columns > most_columns) continue;
    const std::int64_t blocks = std::int64_t(e.B) * e.H * ceil_div(e.Dv, columns);
    const int most = int(std::clamp<std::int64_t>(2 * multiprocessor_count() / blocks, 1, ceil_div(e.L, kChunkLength)));
    for (int segments = 1; segments <= most; ++segments) {
      const LaunchPlan plan = tile::make_launch_plan(e.L, columns, segments);
      const double estimate = walk_time(e, clocks, plan);
      if (best.length == 0 || estimate < least) best = plan, least = estimate;
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

double walk_time(const Extents& e, const WalkClocks& clocks, const LaunchPlan& plan) {
  const Card here = card();
  const int resident = resident_blocks(e, plan.columns, clocks.resident);
  const std::int64_t blocks = std::int64_t(e.B) * e.H * ceil_div(e.Dv, plan.columns) * plan.segments;
  const bool alone = blocks <= here.multiprocessors || resident == 1;
  const double chunks = double(here.rounds(blocks, resident)) * (plan.length / kChunkLength) * share_of(e.Dk);
  const TileClocks& tile = plan.columns == 64 ? clocks.narrow : clocks.wide;
  const double walk = here.microseconds(chunks * (alone ? tile.walk.alone : tile.walk.shared));
  if (plan.segments == 1) return walk;
  const double states = here.microseconds(chunks * (alone ? tile.states.alone : tile.states.shared));
  return walk + states + carry_time(e, plan, here);
}

double walk_time(const Extents& e, const ExclusiveWalkClocks& clocks, const LaunchPlan& plan) {
  const Card here = card();
  const int tiles = ceil_div(e.Dv, plan.columns);
  const double chunks = plan.length / kChunkLength;
  // Blocks of one head read the same keys at about the same time, so the memory delivers them only once.
  const double key_bytes = 2.0 * kChunkLength * e.Dk / tiles,
               value_bytes = 2.0 * kChunkLength * std::min(e.Dv, plan.columns);
  // The time of chunks of `blocks` blocks, `resident` of which run on a multiprocessor at a time.
  const auto time_of = [&](std::int64_t blocks, int resident, double alone, double bytes) {
    const double active = double(std::min(blocks, std::int64_t(resident) * here.multiprocessors));
    return double(here.rounds(blocks, resident)) * chunks *
           std::max(here.microseconds(alone * share_of(e.Dk)), here.transfer(active * bytes, clocks.bytes_speed));
  };
  const std::int64_t heads = std::int64_t(e.B) * e.H;
  const double walk = time_of(heads * tiles * plan.segments, 1, clocks.walk, 2 * (key_bytes + value_bytes));
  if (plan.segments == 1) return walk;
  return walk + time_of(heads * tiles * (plan.segments - 1), 2, clocks.states, key_bytes + value_bytes) +
         carry_time(e, plan, here);
}

LaunchPlan fastest_plan(const Extents& e, const WalkClocks& clocks, int most_columns) {
  return fastest(e, clocks, most_columns ? most_columns : widest_tile(e));
}

LaunchPlan fastest_plan(const Extents& e, const ExclusiveWalkClocks& clocks) {
  return fastest(e, clocks, 64);
}

}  // namespace tutorial::estimate
