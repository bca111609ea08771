/// @file
/// `dispatch`: what a user calls. It adds no kernel but chooses one.
///
/// Idea: estimate the time of each way to compute the problem on this GPU, and take the shortest. In bf16 the choice is
/// the number of segments and the width of a tile, by chapter 02's estimate: a walk takes as long as the chunks that
/// one block computes one after the other; segments add the walk for their states, two launches, and the transfer of
/// the states through memory. One segment is `subchunk_walk`. On Hopper each plan is also estimated for
/// `warpgroup_walk`. In fp32 the choice is between two kernels. `recurrent_gpu` has one block per tile of a head and
/// walks. `chunk_gpu` has one block per chunk and computes more. The walk is faster if heads fill the GPU or the
/// sequence is short: each of its steps takes a latency, and the time of its work for each block on the multiprocessor.
/// The chunks of `chunk_gpu` spread evenly over the multiprocessors, at the price of three more launches.
/// Improves on: `sequence_parallel` always takes as many segments as fill the GPU, even if fewer would be faster, and
/// does not support every width.
/// Unchanged: the kernels, shapes and bytes of the stage that it chooses.
/// Bound by, Requires: as the stage that it chooses. Widths that are no multiple of 16, widths too large for the
/// registers, and unaligned rows are computed in fp32 (dispatch/in_fp32.hpp). Dk > 256 in fp32 goes to `chunk_gpu`.
/// Weakness: the times in the estimate were measured on an H200 at Dk = Dv = 128; those for fp32 follow from counting
/// instructions.

#include <cmath>

#include "03_gla/gla.hpp"
#include "03_gla/gla/dispatch/in_fp32.hpp"
#include "03_gla/gla/launch_plan.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/tile/walk_times.hpp"

namespace tutorial::gla {
namespace {

// fp32: microseconds at Dk = 128.
constexpr double kStepLatency = 0.1, kStepWork = 0.08;  // of a block of `recurrent_gpu`, per position
constexpr double kChunkWork = 18;                       // of a block of `chunk_gpu`, for 64 positions and 64 columns
constexpr double kLaunches = 10;                        // of `chunk_gpu`

/// Work items per multiprocessor if all of them are spread evenly. In double: there may be more than 2^31.
double each_of(double items) {
  return std::ceil(items / multiprocessor_count());
}

bool walk_is_faster(const FloatArguments& a) {
  const double heads = double(a.B) * a.H, width = a.Dk / 128.0;
  const double walks = each_of(heads * ceil_div(a.Dv, 32));
  const double chunks = each_of(heads * ceil_div(a.L, 64) * ceil_div(a.Dv, 64));
  return a.L * (kStepLatency + walks * kStepWork * width) < kLaunches + chunks * kChunkWork * width;
}

bool picks_recurrent(const FloatArguments& a) {
  if (!recurrent_gpu_unsupported(a).empty()) return false;
  return !chunk_gpu_unsupported(a).empty() || walk_is_faster(a);
}

// bf16.
constexpr tile::WalkTimes kTimes{.narrow = {.walk = {2.0, 3.4}, .states = {1.2, 2.0}},
                                 .wide = {.walk = {3.1, 5.4}, .states = {1.8, 3.3}}};
constexpr tile::ExclusiveWalkTimes kWarpgroupTimes{.walk = 1.25, .states = 2.0, .bytes_per_microsecond = 4.4e6};
constexpr double kPrepareBytesPerMicrosecond = 4e6, kTwoLaunches = 7;  // microseconds

/// A plan, its estimated time in microseconds, and which walk it is for.
struct Choice {
  LaunchPlan plan;
  double time;
  bool on_warpgroups;
};

Choice choose(const Bf16Arguments& a) {
  const tile::Extents extents = tile::extents_of(a);
  const LaunchPlan warps = tile::fastest_launch_plan(extents, kTimes);
  const Choice by_warps{warps, tile::estimated_time(extents, kTimes, warps), false};
  if (!warpgroup_walk_unsupported(a).empty()) return by_warps;
  const LaunchPlan warpgroups = tile::fastest_launch_plan(extents, kWarpgroupTimes);
  const Choice by_warpgroups{warpgroups, tile::estimated_time(extents, kWarpgroupTimes, warpgroups), true};
  return by_warpgroups.time < by_warps.time ? by_warpgroups : by_warps;
}

}  // namespace

bool dispatch_takes_warpgroups(const Bf16Arguments& a) {
  return choose(a).on_warpgroups;
}

LaunchPlan dispatch_plan(const Bf16Arguments& a) {
  return choose(a).plan;
}

double dispatch_time(const Bf16Arguments& a) {
  if (!subchunk_walk_unsupported(a).empty()) return HUGE_VAL;
  const double prepared_bytes = double(a.B) * a.H * a.L * a.Dk * (8 + 4.5);  // read and written
  return kTwoLaunches + prepared_bytes / kPrepareBytesPerMicrosecond + choose(a).time;
}

void dispatch(const FloatArguments& a) {
  picks_recurrent(a) ? recurrent_gpu(a) : chunk_gpu(a);
}

std::string dispatch_unsupported(const FloatArguments& a) {
  return picks_recurrent(a) ? "" : chunk_gpu_unsupported(a);
}

std::string dispatch_note(const FloatArguments& a) {
  return picks_recurrent(a) ? "recurrent_gpu" : "chunk_gpu";
}

std::int64_t dispatch_memory(const FloatArguments& a) {
  return picks_recurrent(a) ? recurrent_gpu_memory(a) : chunk_gpu_memory(a);
}

void dispatch(const Bf16Arguments& a) {
  if (!subchunk_walk_unsupported(a).empty()) return dispatch_in_fp32(a);
  dispatch_takes_warpgroups(a) ? walk_on_warpgroups(a, dispatch_plan(a)) : walk(a, dispatch_plan(a));
}

std::string dispatch_unsupported(const Bf16Arguments& a) {
  return subchunk_walk_unsupported(a).empty() ? "" : in_fp32_unsupported(a);
}

std::string dispatch_note(const Bf16Arguments& a) {
  if (const std::string reason = subchunk_walk_unsupported(a); !reason.empty()) {
    return in_fp32_note(a) + " in fp32: " + reason;
  }
  const LaunchPlan plan = dispatch_plan(a);
  const std::string segments = plan.segments > 1 ? std::to_string(plan.segments) + " segments, " : "";
  const std::string columns = std::to_string(plan.columns) + " columns per block";
  if (dispatch_takes_warpgroups(a)) return "warpgroup_walk, " + segments + columns;
  return (plan.segments > 1 ? "sequence_parallel, " : "subchunk_walk, ") + segments + columns;
}

std::int64_t dispatch_memory(const Bf16Arguments& a) {
  return subchunk_walk_unsupported(a).empty() ? walk_memory(a, dispatch_plan(a)) : in_fp32_memory(a);
}

}  // namespace tutorial::gla
