/// @file
/// How the walk of `register_scores` is spread over the GPU.

#include <algorithm>

#include "04_fused_chunk/simple_gla/launch_plan.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"

namespace tutorial::simple_gla {
namespace {

// Measured on an H200.
// Times of `specialized`, chosen so that the plans are within 8 % of the fastest plans that were timed. A chunk of the
// walk of `register_scores` takes 1.02 with few blocks.
constexpr tile::ExclusiveWalkTimes kWarpgroupTimes{.walk = 0.85, .states = 0.4, .bytes_per_microsecond = 4.6e6};

// Of two segments, of which the first is walked beside the kernel for its state: times that were measured together.
constexpr double kWalk = 1.02, kStates = 0.67;        // microseconds per chunk at Dk = 128
constexpr double kWalkAlone = 4, kStatesAndWalk = 7;  // microseconds beside those of chunks

/// The plan where two segments of each head fill the GPU, and no third one would fit. While the first segment is
/// walked, the other half of the GPU computes its state and then walks the second. So the first one is as long as both
/// together take.
LaunchPlan two_segments(const tile::Extents& e) {
  const double width = 0.3 + 0.7 * e.Dk / 128, walk = kWalk * width, states = kStates * width;
  const int chunks = ceil_div(e.L, 64);
  const int first = std::min(int((walk * chunks + kStatesAndWalk - kWalkAlone) / (2 * walk - states)), chunks);
  const double time = std::max(kWalkAlone + first * walk, kStatesAndWalk + first * states + (chunks - first) * walk);
  const bool is_faster = time < kWalkAlone + chunks * walk;
  return {64, is_faster ? 2 : 1, (is_faster ? first : chunks) * 64, nullptr};
}

}  // namespace

LaunchPlan hopper_plan(const tile::Extents& e) {
  const std::int64_t blocks = std::int64_t(e.B) * e.H * ceil_div(e.Dv, 64);
  return multiprocessor_count() / blocks == 2 ? two_segments(e) : tile::fastest_launch_plan(e, kWarpgroupTimes);
}

}  // namespace tutorial::simple_gla
