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
/// Improves on: `segments` always takes as many segments as fill the GPU, even if fewer would be faster, and
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
#include "03_gla/gla/requirements.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/estimate/card.hpp"
#include "common/estimate/walk_times.hpp"

namespace tutorial::gla {
namespace {

// fp32: clocks at Dk = 128.
constexpr double kStepLatency = 200, kStepWork = 160;  // of a block of `recurrent_gpu`, per position
constexpr double kChunkWork = 35600;                   // of a block of `chunk_gpu`, for 64 positions and 64 columns
constexpr double kLaunches = 10;                       // of `chunk_gpu`, in microseconds

/// Work items per multiprocessor if all of them are spread evenly. In double: there may be more than 2^31.
double each_of(double items) {
  return std::ceil(items / multiprocessor_count());
}

bool walk_is_faster(const FloatArguments& a) {
  const double heads = double(a.B) * a.H, width = a.Dk / 128.0;
  const double walks = each_of(heads * ceil_div(a.Dv, 32));
  const double chunks = each_of(heads * ceil_div(a.L, 64) * ceil_div(a.Dv, 64));
  const estimate::Card card = estimate::card();
  return card.microseconds(a.L * (kStepLatency + walks * kStepWork * width)) <
         kLaunches + card.microseconds(chunks * kChunkWork * width);
}

// bf16.
constexpr estimate::WalkClocks kWarpClocks{.narrow = {.walk = {3960, 6730}, .states = {2380, 3960}},
                                           .wide = {.walk = {6140, 10700}, .states = {3560, 6530}}};
constexpr estimate::ExclusiveWalkClocks kWarpgroupClocks{.walk = 2480, .states = 3960, .bytes_speed = 1.05};
constexpr double kPrepareSpeed = 0.95;  // of a copy's
constexpr double kTwoLaunches = 7;      // microseconds

/// What is called for a problem, and what there is to say of it.
struct Choice {
  std::string unsupported = {};  ///< why nothing can be called, as a sentence; empty if it can
  std::string note = {};
  std::int64_t memory = 0;
  std::int64_t bytes_moved = -1;
  double time = HUGE_VAL;  ///< estimated, in microseconds

  void (*run)(const FloatArguments&) = nullptr;                         ///< in fp32
  void (*run_plan)(const Bf16Arguments&, const LaunchPlan&) = nullptr;  ///< in bf16; null: on copies in fp32
  LaunchPlan plan = {};
};

Choice choose(const FloatArguments& a) {
  const std::string reason = chunk_gpu_unsupported(a);
  if (recurrent_gpu_unsupported(a).empty() && (!reason.empty() || walk_is_faster(a))) {
    return {.note = "recurrent_gpu", .run = recurrent_gpu};
  }
  return {.unsupported = reason, .note = "chunk_gpu", .memory = chunk_gpu_memory(a), .run = chunk_gpu};
}

Choice choose(const Bf16Arguments& a) {
  if (const std::string reason = subchunk_walk_unsupported(a); !reason.empty()) {
    return {.unsupported = in_fp32_unsupported(a),
            .note = in_fp32_note(a) + " in fp32: " + reason,
            .memory = in_fp32_memory(a)};
  }
  const tile::Extents extents = tile::extents_of(a);
  LaunchPlan plan = estimate::fastest_plan(extents, kWarpClocks);
  double time = estimate::walk_time(extents, kWarpClocks, plan);
  bool on_warpgroups = false;
  if (warpgroup_walk_unsupported(a).empty()) {
    const LaunchPlan other = estimate::fastest_plan(extents, kWarpgroupClocks);
    const double its_time = estimate::walk_time(extents, kWarpgroupClocks, other);
    on_warpgroups = its_time < time;
    if (on_warpgroups) plan = other, time = its_time;
  }
  const double prepared_bytes = double(a.B) * a.H * a.L * a.Dk * (8 + 4.5);  // read and written
  const char* const kernel = on_warpgroups ? "warpgroup_walk" : "subchunk_walk";
  const std::string segments = plan.segments > 1 ? ", " + std::to_string(plan.segments) + " segments" : "";
  return {.note = kernel + segments + ", " + std::to_string(plan.columns) + " columns per block",
          .memory = walk_memory(a, plan),
          .bytes_moved = walk_bytes_moved(a, plan),
          .time = kTwoLaunches + estimate::card().transfer(prepared_bytes, kPrepareSpeed) + time,
          .run_plan = on_warpgroups ? walk_on_warpgroups : walk,
          .plan = plan};
}

}  // namespace

void dispatch(const FloatArguments& a) {
  choose(a).run(a);
}

void dispatch(const Bf16Arguments& a) {
  const Choice choice = choose(a);
  choice.run_plan ? choice.run_plan(a, choice.plan) : dispatch_in_fp32(a);
}

std::string dispatch_unsupported(const FloatArguments& a) {
  return choose(a).unsupported;
}

std::string dispatch_unsupported(const Bf16Arguments& a) {
  return choose(a).unsupported;
}

std::string dispatch_note(const FloatArguments& a) {
  return choose(a).note;
}

std::string dispatch_note(const Bf16Arguments& a) {
  return choose(a).note;
}

std::int64_t dispatch_memory(const FloatArguments& a) {
  return choose(a).memory;
}

std::int64_t dispatch_memory(const Bf16Arguments& a) {
  return choose(a).memory;
}

std::int64_t dispatch_bytes_moved(const Bf16Arguments& a) {
  return choose(a).bytes_moved;
}

double dispatch_time(const Bf16Arguments& a) {
  return choose(a).time;
}

}  // namespace tutorial::gla
