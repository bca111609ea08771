#include "05_deltanet_wy/gated_delta_rule/dispatch/plan.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/estimate/card.hpp"

namespace tutorial::gated_delta_rule {
namespace {

// Microseconds.
constexpr double kPrepareLaunch = 10;  // the launch of prepare_tiles(), and the gap before the walk
constexpr double kNoEarlyStart = 0.5;  // what the two kernels for segments take longer than those of delta_rule

constexpr delta_rule::WalkCosts kCluster{2670, 11090, 2, 128}, kThreeBlocks{2220, 16240, 3, 128};

}  // namespace

delta_rule::Walk fastest_walk(const Bf16Arguments& a) {
  using delta_rule::estimated_time, delta_rule::Walk;
  if (!cluster_unsupported(a).empty()) return Walk::segments;
  const double prepare =
      kPrepareLaunch + estimate::card().transfer(double(a.B) * a.H * a.L * (4 * a.Dk + 384), delta_rule::kBytesSpeed);
  const tile::LaunchPlan plan = delta_rule::fastest_segments(a);
  const double segments = prepare + estimated_time(a, plan, 256, 128) + (plan.segments > 1 ? kNoEarlyStart : 0);
  const std::pair<double, Walk> times[] = {{segments, Walk::segments},
                                           {estimated_time(a, kCluster), Walk::cluster},
                                           {estimated_time(a, kThreeBlocks), Walk::three_blocks}};
  return std::min_element(std::begin(times), std::end(times))->second;
}

}  // namespace tutorial::gated_delta_rule
