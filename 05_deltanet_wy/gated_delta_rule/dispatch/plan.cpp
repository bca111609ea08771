#include "05_deltanet_wy/gated_delta_rule/dispatch/plan.hpp"

#include <algorithm>
#include <cstdint>

#include "05_deltanet_wy/gated_delta_rule/dispatch/zero_starts.hpp"
#include "common/estimate/card.hpp"

namespace tutorial::gated_delta_rule {
namespace {

// Microseconds.
constexpr double kPrepareLaunch = 10;  // the launch of prepare_tiles(), and the gap before the walk
constexpr double kNoEarlyStart = 0.5;  // what the two kernels for segments took longer than those of delta_rule
// A kernel that finds that the gates do not allow it to start from zeros; and those that find that it could.
constexpr double kRefusal = 7, kNothingToDo = 5;

constexpr delta_rule::WalkCosts kCluster{2670, 11090, 2, 128}, kThreeBlocks{2220, 16240, 3, 128};
// For a chunk it took 2.66 us on an H100, with 64 chunks of 100 heads, where that of delta_rule took 2.48. A single chunk
// of 32 heads takes 0.0066 ms on an H200, and 0.0069 in `cluster`.
constexpr delta_rule::WalkCosts kOneBlock{4690, 8900, 1, 128};

}  // namespace

FastestWalk fastest_walk(const Bf16Arguments& a) {
  using delta_rule::estimated_time, delta_rule::Walk;
  const double prepare =
      kPrepareLaunch + estimate::card().transfer(double(a.B) * a.H * a.L * (4 * a.Dk + 384), delta_rule::kBytesSpeed);
  const tile::LaunchPlan plan = delta_rule::fastest_segments(a);
  const double segments = prepare + estimated_time(a, plan, 256, 128) + (plan.segments > 1 ? kNoEarlyStart : 0);
  if (!cluster_unsupported(a).empty()) return {Walk::segments, segments};
  const FastestWalk walks[] = {{Walk::segments, segments},
                               {Walk::cluster, estimated_time(a, kCluster)},
                               {Walk::three_blocks, estimated_time(a, kThreeBlocks)},
                               {Walk::one_block, estimated_time(a, kOneBlock)}};
  return *std::ranges::min_element(walks, {}, &FastestWalk::microseconds);
}

tile::LaunchPlan zero_start_segments(const Bf16Arguments& a, const FastestWalk& otherwise) {
  constexpr int kChunk = 64;
  const tile::LaunchPlan one = tile::make_launch_plan(a.L, kChunk, 1), plan = one_wave_of_clusters(a);
  // With as many heads as these two are for, no multiprocessor is idle.
  if (otherwise.walk == delta_rule::Walk::cluster || otherwise.walk == delta_rule::Walk::one_block) return one;
  if (!cluster_unsupported(a).empty()) return one;
  // With few heads the gain is two to three times that of the loss, so there the question may cost more.
  if (otherwise.walk == delta_rule::Walk::three_blocks && otherwise.microseconds < kRefusal / 0.025) return one;
  if (otherwise.microseconds < kRefusal / 0.07) return one;
  if (plan.segments == 1) return one;
  Bf16Arguments longest = a;  // one chunk before it
  longest.L = plan.length + kChunk;
  longest.B = 1, longest.H = 1;
  const double time = kRefusal + kNothingToDo +
                      std::max(delta_rule::estimated_time(longest, kCluster),
                               estimate::card().transfer(double(a.B) * a.H * a.L * 4 * (a.Dk + a.Dv)));
  return time < otherwise.microseconds ? plan : one;
}

}  // namespace tutorial::gated_delta_rule
