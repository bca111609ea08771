/// @file
/// How `segments` is spread over the GPU: by estimated times.

#include <algorithm>

#include "04_fused_chunk/gla/launch_plan.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/tile/sub_chunk.hpp"

namespace tutorial::fused_gla {
namespace {

constexpr int kChunkLength = tile::kSubChunk * tile::kSubChunks;

/// Microseconds per chunk at Dk = 128, as long as the memory keeps up: of the walk, and of the kernel for the states.
struct ChunkTimes {
  double walk, states;
};
constexpr ChunkTimes kNarrow{2.55, 1.2}, kWide{3.2, 1.45};  // tiles of 64 columns, of 128
constexpr double kBytesPerMicrosecond = 4.2e6, kStateBytesPerMicrosecond = 3.5e6;
constexpr double kLaunch = 4, kTwoMoreLaunches = 4, kCarryStep = 0.27;  // microseconds
constexpr int kStateTrips = 3;                                          // of four, one overlaps a walk
// With longer segments there is nothing to gain: 1 % with 32 heads, and with 16 heads it took 12 % more.
constexpr int kLongestThatStartsEarly = 16 * kChunkLength;

/// Bytes of the states of all segments but the last.
std::int64_t state_bytes(const Bf16Arguments& a, const LaunchPlan& plan) {
  return tile::launch_plan_memory(tile::extents_of(a), plan);
}

}  // namespace

double segments_time(const Bf16Arguments& a, const LaunchPlan& plan) {
  const int multiprocessors = multiprocessor_count(), tiles = ceil_div(a.Dv, plan.columns);
  const double width = 0.3 + 0.7 * a.Dk / 128, chunks = plan.length / kChunkLength;
  const auto& times = plan.columns == 64 ? kNarrow : kWide;
  // Each block has a multiprocessor to itself. Blocks of one head read the same keys at about the same time, so the
  // memory delivers them only once.
  const auto time_of = [&](int segments, double of_chunk, int key_bytes, int value_bytes) {
    const std::int64_t blocks = std::int64_t(a.B) * a.H * tiles * segments;
    const double bytes = kChunkLength * (double(key_bytes) * a.Dk + double(value_bytes) * a.Dv) / tiles;
    const double rounds = double(ceil_div(blocks, multiprocessors));
    const double active = double(std::min<std::int64_t>(blocks, multiprocessors));
    return rounds * chunks * std::max(of_chunk * width, active * bytes / kBytesPerMicrosecond);
  };
  double time = kLaunch + time_of(plan.segments, times.walk, 2 + 2 + 4, 2 + 2);
  if (plan.segments > 1) {
    time += kTwoMoreLaunches + kCarryStep * plan.segments + time_of(plan.segments - 1, times.states, 2 + 4, 2) +
            kStateTrips * double(state_bytes(a, plan)) / kStateBytesPerMicrosecond;
  }
  return time;
}

LaunchPlan segments_plan(const Bf16Arguments& a) {
  LaunchPlan best = tile::make_launch_plan(a.L, 64, 1);
  for (const int columns : {64, 128}) {
    if (columns > tile::widest_tile(tile::extents_of(a))) continue;
    const std::int64_t blocks = std::int64_t(a.B) * a.H * ceil_div(a.Dv, columns);
    const int most = int(std::max<std::int64_t>(multiprocessor_count() / blocks, 1));
    for (int segments = 1; segments <= most; ++segments) {
      const LaunchPlan plan = tile::make_launch_plan(a.L, columns, segments);
      if (segments_time(a, plan) < segments_time(a, best)) best = plan;
    }
  }
  best.starts_early = best.segments > 1 && best.length <= kLongestThatStartsEarly;
  return best;
}

}  // namespace tutorial::fused_gla
