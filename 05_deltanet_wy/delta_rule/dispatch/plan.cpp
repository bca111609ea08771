#include "05_deltanet_wy/delta_rule/dispatch/plan.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "05_deltanet_wy/chunk/prepare_inverses.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"

namespace tutorial::delta_rule {
namespace {

constexpr int kChunk = 64, kColumns = 64;
constexpr int kInverseBytes = kInverseRows * 2;  // of T, for a position

// Microseconds on an H200, and bytes per microsecond.
constexpr double kWalkChunk = 0.92;  // of the walk
constexpr double kMapChunk = 0.97;   // of the walk without outputs, 128 columns
constexpr double kLink = 1.0;        // from one segment to the next
constexpr double kTwoMoreLaunches = 5.5;
constexpr double kBytes = 3.95e6;
constexpr double kPrepareLaunch = 5;  // its launch, and the gap before the walk

constexpr WalkCosts kOneKernel{1.82, 3.1, 1, 64}, kCluster{1.19, 5.5, 2, 128}, kThreeBlocks{0.97, 7.5, 3, 128};
constexpr WalkCosts kOneBlock{2.2, 5.5, 1, 128};

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
  const double chunks = plan.length / kChunk, positions = double(tiles.heads) * a.L;
  const auto rounds = [](std::int64_t blocks) { return double(ceil_div(blocks, multiprocessor_count())); };
  // The tiles of a head read the same q, k and T at about the same time, so they come from memory only once.
  double time = together(rounds(tiles.heads * tiles.values * plan.segments) * chunks * kWalkChunk,
                         positions * (4 * (a.Dk + a.Dv) + inverse_bytes + score_bytes) / kBytes);
  if (const int count = plan.segments - 1; count > 0) {
    const std::int64_t blocks = tiles.heads * (count * ceil_div(tiles.values, 2) + count - 1);
    time += together(rounds(blocks) * chunks * kMapChunk, positions * (2 * (a.Dk + a.Dv) + inverse_bytes) / kBytes) +
            rounds(tiles.heads * tiles.values) * (count - 1) * kLink + kTwoMoreLaunches;
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
  // A cluster's multiprocessors are neighbours. Of 132, clusters of three can use 117.
  const int count = multiprocessor_count();
  const int at_a_time = std::max(1, costs.blocks == 3 ? count * 3 / 10 : count / costs.blocks);
  return costs.first + together(double(ceil_div(units, at_a_time)) * ceil_div(a.L, kChunk) * costs.chunk,
                                double(heads) * a.L * 4 * (a.Dk + a.Dv) / kBytes);
}

Walk fastest_walk(const Bf16Arguments& a) {
  const double prepare = kPrepareLaunch + double(a.B) * a.H * a.L * (2 * a.Dk + kInverseBytes) / kBytes;
  const std::pair<double, Walk> times[] = {{prepare + estimated_time(a, fastest_segments(a)), Walk::segments},
                                           {estimated_time(a, kOneKernel), Walk::one_kernel},
                                           {estimated_time(a, kCluster), Walk::cluster},
                                           {estimated_time(a, kThreeBlocks), Walk::three_blocks},
                                           {estimated_time(a, kOneBlock), Walk::one_block}};
  return std::min_element(std::begin(times), std::end(times))->second;
}

}  // namespace tutorial::delta_rule
