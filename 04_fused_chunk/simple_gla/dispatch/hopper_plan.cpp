/// @file
/// How the walk of `register_scores` is spread over the GPU.

#include <algorithm>

#include "04_fused_chunk/simple_gla/dispatch/walks.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/estimate/card.hpp"
#include "common/estimate/walk_times.hpp"

namespace tutorial::simple_gla {
namespace {

// Measured on an H200. Times of `specialized`, chosen so that the plans are within 8 % of the fastest plans that were
// timed. A chunk of the walk of `register_scores` takes 1.02 with few blocks.
constexpr estimate::ExclusiveWalkClocks kWarpgroupClocks{.walk = 1680, .states = 790, .bytes_speed = 1.1};

// Of two segments, of which the first is walked beside the kernel for its state. Clocks of a chunk at Dk = 128: of the
// walk of the first, of that of the second, of the states' kernel, and of the walk of a single segment. Microseconds that
// are not spent on chunks: with one segment, by the walk beside the states, and by the states and the walk after them. And
// the speed of all bytes together, as a multiple of a copy's.
constexpr double kFirst = 2080, kSecond = 2020, kStates = 1040, kSingle = 1950;
constexpr double kAlone = 3.2, kBeside = 5.3, kBoth = 7.77;
constexpr double kBytesSpeed = 0.95;

/// The plan where two segments of each head fill the GPU, and no third one would fit. While the first segment is
/// walked, the other half of the GPU computes its state and then walks the second. So the first one is as long as both
/// together take.
LaunchPlan two_segments(const tile::Extents& e) {
  const estimate::Card card = estimate::card();
  const double width = card.microseconds(0.3 + 0.7 * e.Dk / 128);  // of a clock, as Dk has it
  const int chunks = ceil_div(e.L, 64);
  const double balanced = (width * kSecond * chunks + kBoth - kBeside) / (width * (kFirst + kSecond - kStates));
  const int first = std::min(int(balanced), chunks), second = chunks - first;
  const double chain = std::max(kBeside + width * kFirst * first, kBoth + width * (kStates * first + kSecond * second));
  // q, k, v and o; and k and v of the first segment once more.
  const double bytes = 2.0 * e.B * e.H * (e.Dk + e.Dv) * (2.0 * e.L + 64.0 * first);
  const double time = std::max(chain, card.transfer(bytes, kBytesSpeed));
  if (time >= kAlone + width * kSingle * chunks) return tile::make_launch_plan(e.L, 64, 1);
  return {.segments = 2, .length = first * 64, .starts_early = true};
}

}  // namespace

LaunchPlan hopper_plan(const tile::Extents& e) {
  const std::int64_t blocks = std::int64_t(e.B) * e.H * ceil_div(e.Dv, 64);
  return multiprocessor_count() / blocks == 2 ? two_segments(e) : estimate::fastest_plan(e, kWarpgroupClocks);
}

}  // namespace tutorial::simple_gla
