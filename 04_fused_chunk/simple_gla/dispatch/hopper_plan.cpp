/// @file
/// How the walk of `register_scores` is spread over the GPU.

#include <algorithm>

#include "04_fused_chunk/simple_gla/dispatch/walks.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/tile/walk_times.hpp"

namespace tutorial::simple_gla {
namespace {

// Measured on an H200. Times of `specialized`, chosen so that the plans are within 8 % of the fastest plans that were
// timed. A chunk of the walk of `register_scores` takes 1.02 with few blocks.
constexpr tile::ExclusiveWalkTimes kWarpgroupTimes{.walk = 0.85, .states = 0.4, .bytes_per_microsecond = 4.6e6};

// Of two segments, of which the first is walked beside the kernel for its state. In microseconds, per chunk at Dk =
// 128: the walk of the first, that of the second and the states' kernel; and what is not spent on chunks: with one
// segment, by the walk beside the states, and by the states and the walk after them.
constexpr double kFirst = 1.05, kSecond = 1.02, kStates = 0.525, kAlone = 3.2, kBeside = 5.3, kBoth = 7.77;

/// The plan where two segments of each head fill the GPU, and no third one would fit. While the first segment is
/// walked, the other half of the GPU computes its state and then walks the second. So the first one is as long as both
/// together take.
LaunchPlan two_segments(const tile::Extents& e) {
  const double width = 0.3 + 0.7 * e.Dk / 128;
  const int chunks = ceil_div(e.L, 64);
  const double balanced = (width * kSecond * chunks + kBoth - kBeside) / (width * (kFirst + kSecond - kStates));
  const int first = std::min(int(balanced), chunks), second = chunks - first;
  const double time = std::max(kBeside + width * kFirst * first, kBoth + width * (kStates * first + kSecond * second));
  if (time >= kAlone + width * kSecond * chunks) return tile::make_launch_plan(e.L, 64, 1);
  return {.segments = 2, .length = first * 64, .starts_early = true};
}

}  // namespace

LaunchPlan hopper_plan(const tile::Extents& e) {
  const std::int64_t blocks = std::int64_t(e.B) * e.H * ceil_div(e.Dv, 64);
  return multiprocessor_count() / blocks == 2 ? two_segments(e) : tile::fastest_launch_plan(e, kWarpgroupTimes);
}

}  // namespace tutorial::simple_gla
