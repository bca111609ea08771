#include "05_deltanet_wy/delta_rule/dispatch/segmented_plan.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/requirements.hpp"

#include <algorithm>

#include "05_deltanet_wy/delta_rule/dispatch/plan.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/segmented_walk.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/specialized_warps.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/estimate/card.hpp"

namespace tutorial::delta_rule {
namespace {

constexpr int kChunk = 64, kColumns = 64, kMapColumns = 128;

// Clocks of a block that is alone on its multiprocessor, at Dk = 128 (those of the segments on an H200 with --as 12.0:
// docs/notebook/cards.md).
constexpr double kNarrowClocks = 2570, kWideClocks = 3820;  // of `specialized_warps`, 32 and 64 columns
constexpr double kFusedClocks = 4360;                       // of segmented_walk()
constexpr double kMapClocks = 4360;                         // of its kernel 1: 128 columns, no outputs
constexpr double kLinkClocks = 1980;                        // from one segment to the next
constexpr double kTwoMoreLaunches = 6;                      // microseconds

/// The part of a chunk's time that depends on Dk, and the part that does not.
double width_of(const Bf16Arguments& a) {
  return 0.3 + 0.7 * a.Dk / 128;
}

/// A kernel whose blocks walk over chunks, one block per multiprocessor at a time.
double time_of(const Bf16Arguments& a, std::int64_t blocks, double chunks, double clocks, double bytes) {
  const estimate::Card card = estimate::card();
  return std::max(card.microseconds(double(card.rounds(blocks)) * chunks * clocks * width_of(a)),
                  card.transfer(bytes, kBytesSpeed));
}

}  // namespace

double segmented_walk_time(const Bf16Arguments& a, const tile::LaunchPlan& plan) {
  const std::int64_t heads = std::int64_t(a.B) * a.H, tiles = ceil_div(a.Dv, kColumns);
  const double chunks = plan.length / kChunk, positions = double(heads) * a.L;
  // The tiles of a head read the same q, k, T and P at about the same time, so these come from memory only once. T takes
  // 160 bytes per position, P 80.
  double time = time_of(a, heads * tiles * plan.segments, chunks, kFusedClocks, positions * (4 * (a.Dk + a.Dv) + 240));
  if (const int count = plan.segments - 1; count > 0) {
    const std::int64_t blocks = heads * (count * ceil_div(a.Dv, kMapColumns) + count - 1);
    const estimate::Card card = estimate::card();
    const double carries = double(card.rounds(heads * (a.Dv / 16)));
    time += time_of(a, blocks, chunks, kMapClocks, positions * (2 * (a.Dk + a.Dv) + 160)) +
            card.microseconds(carries * (count - 1) * kLinkClocks) + kTwoMoreLaunches;
  }
  return time;
}

double specialized_warps_time(const Bf16Arguments& a) {
  const std::int64_t heads = std::int64_t(a.B) * a.H;
  const int columns = specialized_warps_columns(a);
  return time_of(a, heads * ceil_div(a.Dv, columns), ceil_div(a.L, kChunk), columns == 32 ? kNarrowClocks : kWideClocks,
                 double(heads) * a.L * (4 * (a.Dk + a.Dv) + 240));
}

tile::LaunchPlan fastest_segmented_plan(const Bf16Arguments& a) {
  const std::int64_t blocks = std::int64_t(a.B) * a.H * ceil_div(a.Dv, kColumns);
  const std::int64_t most = a.Dk > kWidestOfSegments ? 1
                                                     : std::clamp<std::int64_t>(2 * multiprocessor_count() / blocks, 1,
                                                                                ceil_div(a.L, kChunk));
  tile::LaunchPlan best = tile::make_launch_plan(a.L, kColumns, 1);
  for (int segments = 2; segments <= most; ++segments) {
    const tile::LaunchPlan plan = tile::make_launch_plan(a.L, kColumns, segments);
    if (segmented_walk_time(a, plan) < segmented_walk_time(a, best)) best = plan;
  }
  return best;
}

std::optional<tile::LaunchPlan> segmented_plan(const Bf16Arguments& a) {
  const tile::LaunchPlan plan = fastest_segmented_plan(a);
  if (specialized_warps_unsupported(a).empty() &&
      (plan.segments == 1 || specialized_warps_time(a) <= segmented_walk_time(a, plan)))
    return {};
  return plan;
}

}  // namespace tutorial::delta_rule
