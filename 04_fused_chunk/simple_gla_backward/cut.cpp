#include "04_fused_chunk/simple_gla_backward/cut.hpp"

#include <algorithm>
#include <cstdint>

#include "common/device/device.hpp"

namespace tutorial::simple_gla {
namespace {

constexpr int kChunkLength = 64;

// Estimates in microseconds: a chunk of a walk, the start of a block, a chunk of the kernel that computes states, and
// the launches of this kernel and of the carry. States are written, read and written again at this rate.
constexpr double kChunkTime = 1.05, kBlockStart = 4, kStatesTime = 1.3, kStatesLaunches = 12;
constexpr double kStateBytesPerMicrosecond = 3.5e6;

/// The estimated time of all walks.
double time_of(const Bf16BackwardArguments& b, const Cut& cut) {
  const int multiprocessors = multiprocessor_count(), chunks = cut.plan.length / kChunkLength;
  const std::int64_t heads = std::int64_t(b.B) * b.H, key_tiles = ceil_div(b.Dk, 64), value_tiles = ceil_div(b.Dv, 64);
  const double run = chunks * cut.each * kChunkTime + kBlockStart;
  const double rounds = double(ceil_div(heads * (2 * key_tiles + value_tiles) * cut.runs(), multiprocessors));
  if (!cut.are_given) return std::max(rounds, double(cut.runs())) * run;  // the runs of a walk follow one another
  const std::int64_t blocks = 2 * heads * value_tiles * (cut.plan.segments - 1);
  const double bytes = 2 * double(tile::launch_plan_memory(tile::extents_of(b), cut.plan));
  return rounds * run + double(ceil_div(blocks, 2 * multiprocessors)) * chunks * kStatesTime + kStatesLaunches +
         3 * bytes / kStateBytesPerMicrosecond;
}

}  // namespace

tile::LaunchPlan plan_of(const Bf16BackwardArguments& b) {
  const std::int64_t blocks = std::int64_t(b.B) * b.H * (2 * ceil_div(b.Dk, 64) + ceil_div(b.Dv, 64));
  const int filling = int(ceil_div(std::int64_t(2) * multiprocessor_count(), blocks));
  const int most = ceil_div(b.L, 4 * kChunkLength);
  return tile::make_launch_plan(b.L, 64, std::max(std::min(filling, most), ceil_div(b.L, kLongest)));
}

Cut cut_into(const Bf16BackwardArguments& b, int runs, bool are_given) {
  const int each = ceil_div(plan_of(b).segments, runs);
  return {tile::make_launch_plan(b.L, 64, each * runs), each, are_given};
}

Cut fastest_cut(const Bf16BackwardArguments& b) {
  Cut best = cut_into(b, 1, false);
  const int most = std::min(ceil_div(b.L, kChunkLength), multiprocessor_count());
  for (int runs = 2; runs <= most; ++runs) {
    for (const bool are_given : {false, true}) {
      const Cut cut = cut_into(b, runs, are_given);
      if (time_of(b, cut) < time_of(b, best)) best = cut;
    }
  }
  return best;
}

}  // namespace tutorial::simple_gla
