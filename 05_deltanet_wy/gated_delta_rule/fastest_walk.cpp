#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "05_deltanet_wy/gated_delta_rule/segments.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"

namespace tutorial::gated_delta_rule {
namespace {

// Microseconds on an H200, and bytes per microsecond.
constexpr double kPrepareLaunch = 10;  // the launch of prepare_tiles(), and the gap before the walk
constexpr double kNoEarlyStart = 0.5;  // what the two kernels for segments take longer than those of delta_rule
constexpr double kBytes = 3.95e6;

/// A kernel that computes T and P beside the walk.
struct WalkCosts {
  double chunk, first;  // microseconds of a chunk, and until T and P of the first one are there
};
constexpr WalkCosts kCluster{1.35, 5.6}, kThreeBlocks{1.12, 8.2};

}  // namespace

delta_rule::Walk fastest_walk(const Bf16Arguments& a) {
  using delta_rule::Walk;
  if (!cluster_unsupported(a).empty()) return Walk::segments;
  const double positions = double(a.B) * a.H * a.L, bytes = positions * 4 * (a.Dk + a.Dv) / kBytes;
  const std::int64_t clusters = std::int64_t(a.B) * a.H * ceil_div(a.Dv, 128);
  // As in delta_rule/segments.cpp: near the point where both limits are equal it takes longer than either, and clusters
  // of three cannot use all multiprocessors.
  const int count = multiprocessor_count(), pairs = std::max(1, count / 2), triples = std::max(1, count * 3 / 10);
  const auto time = [&](const WalkCosts& costs, int at_a_time) {
    const double chain = double(ceil_div(clusters, at_a_time)) * ceil_div(a.L, 64) * costs.chunk;
    return costs.first + std::sqrt(std::hypot(chain * chain, bytes * bytes));
  };
  const double prepare = kPrepareLaunch + positions * (4 * a.Dk + 384) / kBytes;
  const tile::LaunchPlan plan = delta_rule::fastest_segments(a);
  const double segments =
      prepare + delta_rule::estimated_time(a, plan, 256, 128) + (plan.segments > 1 ? kNoEarlyStart : 0);
  const std::pair<double, Walk> times[] = {{segments, Walk::segments},
                                           {time(kCluster, pairs), Walk::cluster},
                                           {time(kThreeBlocks, triples), Walk::three_blocks}};
  return std::min_element(std::begin(times), std::end(times))->second;
}

}  // namespace tutorial::gated_delta_rule
