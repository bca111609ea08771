/// @file
/// How the walks of `register_scores` and `bounded_start` are spread over the GPU.

#include <algorithm>
#include <cstdint>

#include "04_fused_chunk/simple_gla/dispatch/walks.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/estimate/card.hpp"

namespace tutorial::simple_gla {
namespace {

// Measured on an H200, chosen so that the plans are within 8 % of the fastest plans that were timed: clocks of a chunk at
// Dk = 128, as long as the memory keeps up, and the speed of all bytes as a multiple of a copy's. Some come from the
// cache.
constexpr double kChunkClocks = 1680, kBytesSpeed = 1.1;
// What a segment takes beside its own chunks: a warm-up of one chunk, in chunks, and microseconds to look at the gates
// before a segment, which an H100 did not show for 32 heads of 512 positions (0.0092 ms with two segments, 0.0101 with
// one). Not measured: for two kernels that find nothing to do. Six warps of a block of the first one look at the gates
// before as many segments as a warm-up goes over, and one more.
constexpr double kWarmUp = 0.5, kLook = 0.5, kTwoLaunches = 2;
constexpr int kLookingWarps = 6;

/// The estimated time of a plan in microseconds, if warm-ups take one chunk.
double time_of(const tile::Extents& e, const LaunchPlan& plan) {
  const estimate::Card card = estimate::card();
  const int tiles = ceil_div(e.Dv, plan.columns);
  const std::int64_t blocks = std::int64_t(e.B) * e.H * tiles * plan.segments;
  // Blocks of one head read the same keys at about the same time, so the memory delivers them only once.
  const double bytes = 2.0 * 2 * 64 * (double(e.Dk) / tiles + std::min(e.Dv, plan.columns));
  const double active = double(std::min<std::int64_t>(blocks, card.multiprocessors));
  const double of_chunk =
      std::max(card.microseconds(kChunkClocks * (0.3 + 0.7 * e.Dk / 128)), card.transfer(active * bytes, kBytesSpeed));
  const bool is_cut = plan.segments > 1, may_be_exact = plan.segments - 1 > warm_up_reach(plan);
  const double chunks = plan.length / 64 + (is_cut ? kWarmUp : 0);
  return double(card.rounds(blocks)) * (chunks * of_chunk + (is_cut ? kLook : 0)) +
         (may_be_exact ? kTwoLaunches + kLook * ceil_div(warm_up_reach(plan) + 1, kLookingWarps) : 0);
}

}  // namespace

LaunchPlan hopper_plan(const tile::Extents& e) {
  const std::int64_t blocks = std::int64_t(e.B) * e.H * ceil_div(e.Dv, 64);
  const std::int64_t most = std::min<std::int64_t>(ceil_div(2 * multiprocessor_count(), blocks), ceil_div(e.L, 64));
  LaunchPlan best = tile::make_launch_plan(e.L, 64, 1);
  for (int segments = 2; segments <= most; ++segments) {
    const LaunchPlan plan = tile::make_launch_plan(e.L, 64, segments);
    if (time_of(e, plan) < time_of(e, best)) best = plan;
  }
  return best;
}

}  // namespace tutorial::simple_gla
