/// @file
/// How `hopper_gradients` cuts its walks: by estimated times.

#include "04_fused_chunk/simple_gla_backward/cut.hpp"

#include <algorithm>
#include <cstdint>

#include "04_fused_chunk/simple_gla_backward/segment_plan.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/estimate/card.hpp"

namespace tutorial::simple_gla {
namespace {

constexpr int kChunkLength = 64;

// Clocks with Dk = Dv = 128.
constexpr double kFullClocks = 2510;   // a chunk of a walk, while all multiprocessors have one: the cache is busy
constexpr double kAloneClocks = 2020;  // a chunk of a walk, while few multiprocessors have one
constexpr double kStartClocks = 7920;  // a block's start and end, and a flag between runs
constexpr double kStateClocks = 2380;  // a chunk of the kernel before the walks; each multiprocessor has two blocks
// Microseconds.
constexpr double kLaunches = 12;      // of that kernel and the carries
constexpr double kGateGradient = 8;   // dg after the walks, with its launch
constexpr double kStateSpeed = 0.83;  // of the states at borders, as a multiple of a copy's

}  // namespace

double estimated_time(const Bf16BackwardArguments& b, const Cut& cut) {
  const estimate::Card card = estimate::card();
  const int multiprocessors = card.multiprocessors, chunks = cut.plan.length / kChunkLength, runs = cut.runs();
  const std::int64_t heads = std::int64_t(b.B) * b.H, key_tiles = ceil_div(b.Dk, 64), value_tiles = ceil_div(b.Dv, 64);
  const std::int64_t walks = heads * (2 * key_tiles + value_tiles);
  // Runs of a walk that wait for each other are not under way at once.
  const double busy = double(std::min<std::int64_t>(cut.are_given ? walks * runs : walks, multiprocessors));
  const double run = card.microseconds(
      chunks * cut.each * std::max(kAloneClocks, kFullClocks * busy / multiprocessors) + kStartClocks);
  double rounds = double(ceil_div(walks * runs, multiprocessors));
  if (cut.whole > 0) rounds = double(2 * (walks / multiprocessors) + 1);  // of runs: a whole walk is two
  const double state_pass =                                               // all states at borders read or written once
      card.transfer(2 * double(tile::launch_plan_memory(tile::extents_of(b), cut.plan)), kStateSpeed);
  if (!cut.are_given) return std::max(rounds, double(runs)) * run + kGateGradient + state_pass;
  const std::int64_t blocks = 2 * heads * value_tiles * (cut.plan.segments - 1);
  return rounds * run + card.microseconds(double(card.rounds(blocks, 2)) * chunks * kStateClocks) + kLaunches +
         kGateGradient + 4 * state_pass;  // written, carried, read for dg
}

Cut cut_into(const Bf16BackwardArguments& b, int runs, bool are_given) {
  const int each = ceil_div(plan_of(b).segments, runs);
  return {tile::make_launch_plan(b.L, 64, each * runs), each, are_given};
}

Cut cut_the_rest(const Bf16BackwardArguments& b) {
  const std::int64_t walks = std::int64_t(b.B) * b.H * (2 * ceil_div(b.Dk, 64) + ceil_div(b.Dv, 64));
  const int multiprocessors = multiprocessor_count(), rest = int(walks % multiprocessors);
  if (walks < multiprocessors || rest == 0 || 2 * rest > multiprocessors) return cut_into(b, 1, false);
  Cut cut = cut_into(b, 2, false);
  cut.whole = int(walks) - rest;
  cut.early = multiprocessors - rest;
  return cut;
}

Cut fastest_cut(const Bf16BackwardArguments& b) {
  Cut best = cut_the_rest(b);
  const int most = std::min(ceil_div(b.L, kChunkLength), multiprocessor_count());
  for (int runs = 2; runs <= most; ++runs) {
    for (const bool are_given : {false, true}) {
      const Cut cut = cut_into(b, runs, are_given);
      if (estimated_time(b, cut) < estimated_time(b, best)) best = cut;
    }
  }
  return best;
}

}  // namespace tutorial::simple_gla
