/// @file
/// How `segments` is spread over the GPU: by estimated times.

#include <algorithm>

#include "04_fused_chunk/gla/launch_plan.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/estimate/card.hpp"
#include "common/tile/sub_chunk.hpp"

namespace tutorial::fused_gla {
namespace {

constexpr int kChunkLength = tile::kSubChunk * tile::kSubChunks;

/// Clocks of a chunk at Dk = 128, as long as the memory keeps up: of the walk, and of the kernel for the states.
struct ChunkClocks {
  double walk, states;
};
constexpr ChunkClocks kNarrow{5050, 2380}, kWide{6340, 2870};  // tiles of 64 columns, of 128
constexpr double kBytesSpeed = 1, kStateSpeed = 0.83;          // as multiples of a copy's
constexpr double kLaunch = 4, kTwoMoreLaunches = 4;            // microseconds
constexpr double kCarryClocks = 530;                           // for each segment
constexpr int kStateTrips = 3;                                 // of four, one overlaps a walk
// With longer segments there is nothing to gain: 1 % with 32 heads, and with 16 heads it took 12 % more.
constexpr int kLongestThatStartsEarly = 16 * kChunkLength;

/// Bytes of the states of all segments but the last.
std::int64_t state_bytes(const Bf16Arguments& a, const LaunchPlan& plan) {
  return tile::launch_plan_memory(tile::extents_of(a), plan);
}

}  // namespace

double segments_time(const Bf16Arguments& a, const LaunchPlan& plan) {
  const estimate::Card card = estimate::card();
  const int tiles = ceil_div(a.Dv, plan.columns);
  const double width = 0.3 + 0.7 * a.Dk / 128, chunks = plan.length / kChunkLength;
  const auto& clocks = plan.columns == 64 ? kNarrow : kWide;
  // Each block has a multiprocessor to itself. Blocks of one head read the same keys at about the same time, so the
  // memory delivers them only once.
  const auto time_of = [&](int segments, double of_chunk, int key_bytes, int value_bytes) {
    const std::int64_t blocks = std::int64_t(a.B) * a.H * tiles * segments;
    const double bytes = kChunkLength * (double(key_bytes) * a.Dk + double(value_bytes) * a.Dv) / tiles;
    const double active = double(std::min<std::int64_t>(blocks, card.multiprocessors));
    return double(card.rounds(blocks)) * chunks *
           std::max(card.microseconds(of_chunk * width), card.transfer(active * bytes, kBytesSpeed));
  };
  double time = kLaunch + time_of(plan.segments, clocks.walk, 2 + 2 + 4, 2 + 2);
  if (plan.segments > 1) {
    time += kTwoMoreLaunches + card.microseconds(kCarryClocks * plan.segments) +
            time_of(plan.segments - 1, clocks.states, 2 + 4, 2) +
            card.transfer(kStateTrips * double(state_bytes(a, plan)), kStateSpeed);
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
