#include "05_deltanet_wy/delta_rule/dispatch/plan.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "05_deltanet_wy/chunk/prepare_inverses.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/estimate/card.hpp"

namespace tutorial::delta_rule {
namespace {

constexpr int kChunk = 64, kColumns = 64;
constexpr int kInverseBytes = kInverseRows * 2;  // of T, for a position

// Clocks: of a chunk of the walk, of a chunk of the walk without outputs and with 128 columns, and from one segment to the
// next.
constexpr double kWalkClocks = 1820, kMapClocks = 1920, kLinkClocks = 1980;
// Microseconds: of two more launches; and of the launch of the kernel that prepares, with the gap before the walk.
constexpr double kTwoMoreLaunches = 5.5, kPrepareLaunch = 5;

constexpr WalkCosts kOneKernel{3600, 6140, 1, 64}, kCluster{2360, 10890, 2, 128}, kThreeBlocks{1920, 14850, 3, 128};
constexpr WalkCosts kOneBlock{4360, 10890, 1, 128};

/// The time of a kernel that is limited by both the chain of its chunks and its bytes. If the two are about equal, the
/// kernel takes longer than either.
double together(double chain, double bytes) {
  return std::sqrt(std::hypot(chain * chain, bytes * bytes));
}

/// How many heads and tiles a problem has.
struct Tiles {
  std::int64_t heads, values;  // tiles of 64 columns of Dv

  explicit Tiles(const Bf16Arguments& a) : heads(std::int64_t(a.B) * a.H), values(ceil_div(a.Dv, kColumns)) {}
};

}  // namespace

double estimated_time(const Bf16Arguments& a, const tile::LaunchPlan& plan, int inverse_bytes, int score_bytes) {
  const Tiles tiles(a);
  const estimate::Card card = estimate::card();
  const double chunks = plan.length / kChunk, positions = double(tiles.heads) * a.L;
  const auto chain = [&](std::int64_t blocks, double clocks) {
    return card.microseconds(double(card.rounds(blocks)) * clocks);
  };
  // The tiles of a head read the same q, k and T at about the same time, so they come from memory only once.
  double time = together(chain(tiles.heads * tiles.values * plan.segments, chunks * kWalkClocks),
                         card.transfer(positions * (4 * (a.Dk + a.Dv) + inverse_bytes + score_bytes), kBytesSpeed));
  if (const int count = plan.segments - 1; count > 0) {
    const std::int64_t blocks = tiles.heads * (count * ceil_div(tiles.values, 2) + count - 1);
    time += together(chain(blocks, chunks * kMapClocks),
                     card.transfer(positions * (2 * (a.Dk + a.Dv) + inverse_bytes), kBytesSpeed)) +
            chain(tiles.heads * tiles.values, (count - 1) * kLinkClocks) + kTwoMoreLaunches;
  }
  return time;
}

tile::LaunchPlan fastest_segments(const Bf16Arguments& a) {
  const Tiles tiles(a);
  const std::int64_t most =
      std::clamp<std::int64_t>(2 * multiprocessor_count() / (tiles.heads * tiles.values), 1, ceil_div(a.L, kChunk));
  tile::LaunchPlan best = tile::make_launch_plan(a.L, kColumns, 1);
  for (int segments = 2; segments <= most; ++segments) {
    const tile::LaunchPlan plan = tile::make_launch_plan(a.L, kColumns, segments);
    if (estimated_time(a, plan) < estimated_time(a, best)) best = plan;
  }
  return best;
}

double estimated_time(const Bf16Arguments& a, const WalkCosts& costs) {
  const std::int64_t heads = std::int64_t(a.B) * a.H, units = heads * ceil_div(a.Dv, costs.columns);
  const estimate::Card card = estimate::card();
  const int at_a_time = costs.blocks > 1 ? clusters_at_a_time(costs.blocks) : card.multiprocessors;
  const double chain = double(ceil_div(units, std::max(1, at_a_time))) * ceil_div(a.L, kChunk) * costs.chunk;
  return card.microseconds(costs.first) +
         together(card.microseconds(chain), card.transfer(double(heads) * a.L * 4 * (a.Dk + a.Dv), kBytesSpeed));
}

Walk fastest_walk(const Bf16Arguments& a) {
  const double prepare =
      kPrepareLaunch + estimate::card().transfer(double(a.B) * a.H * a.L * (2 * a.Dk + kInverseBytes), kBytesSpeed);
  const std::pair<double, Walk> times[] = {{prepare + estimated_time(a, fastest_segments(a)), Walk::segments},
                                           {estimated_time(a, kOneKernel), Walk::one_kernel},
                                           {estimated_time(a, kCluster), Walk::cluster},
                                           {estimated_time(a, kThreeBlocks), Walk::three_blocks},
                                           {estimated_time(a, kOneBlock), Walk::one_block}};
  return std::min_element(std::begin(times), std::end(times))->second;
}

}  // namespace tutorial::delta_rule
