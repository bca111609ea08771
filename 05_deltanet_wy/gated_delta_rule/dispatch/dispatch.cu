/// @file
/// `dispatch`: what a user calls.
///
/// Idea: choose by what supports the problem. On Hopper that is `one_block`, `three_blocks`, `cluster` or `segments`,
/// whichever takes the least estimated time (dispatch/plan.cpp); where keys are to be normalised it is `segments`. The number of
/// segments is delta_rule's choice, often one. With few heads and long sequences `zero_starts` comes before: the GPU
/// walks the heads whose gates are strong enough in segments that need no past, and leaves the others. On other GPUs,
/// and with what these stages do not support, it is the walk of dispatch/segmented_walk.cu if there are few heads or a
/// block may have too little shared memory for `tensor_core`, and else `tensor_core`. Then fp32, which is
/// `recurrent_gpu` on copies of q, k and v, whose result is copied back.
/// Improves on: `one_block`, `cluster` and `three_blocks` need Hopper, Dk <= 128 and keys that are normalised already. With few
/// heads they leave multiprocessors idle. Neither they nor `tensor_core` support widths that are no multiple of 16,
/// wide values, or rows that are not aligned.
/// Unchanged: the kernels, shapes and bytes of what it chooses.
/// Bound by, requires: as what it chooses.
/// Weakness: a single segment that needs its past makes its head take the exact way, and with keys that are to be
/// normalised all heads take it.

#include <cuda_runtime.h>

#include <functional>
#include <string>

#include "05_deltanet_wy/delta_rule/dispatch/requirements.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/wide_keys.hpp"
#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "05_deltanet_wy/gated_delta_rule/dispatch/plan.hpp"
#include "05_deltanet_wy/gated_delta_rule/dispatch/segmented_walk.hpp"
#include "05_deltanet_wy/gated_delta_rule/dispatch/segments.hpp"
#include "05_deltanet_wy/gated_delta_rule/dispatch/zero_starts.hpp"
#include "05_deltanet_wy/gated_delta_rule/prepare_gated.hpp"
#include "common/device/fp32_copies.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/requirements.hpp"

namespace tutorial::gated_delta_rule {
namespace {

using delta_rule::Walk;

/// The same problem in fp32.
FloatArguments in_fp32(const Bf16Arguments& a, const Fp32Copies& copies) {
  const auto read = [](const View<float>& x) { return View<const float>{x.data, x.stride_b, x.stride_h, x.stride_l}; };
  return {{a.B, a.H, a.L, a.Dk, a.Dv, a.C, a.scale, a.normalize_keys, read(copies.q), read(copies.k), read(copies.v),
           a.beta, a.initial_state, copies.o, a.final_state},
          a.g};
}

/// A kernel, and what is to be said about it.
struct Choice {
  std::function<void()> run;
  std::string note;
  std::int64_t memory = 0, bytes_moved = -1;
  std::string unsupported = "";
};

/// What runs on warpgroups.
Choice walk_of_warpgroups(const Bf16Arguments& a, Walk walk) {
  switch (walk) {
    case Walk::cluster:
      return {[a] { cluster(a); }, "clusters of two blocks", 0, cluster_bytes_moved(a)};
    case Walk::three_blocks:
      return {[a] { three_blocks(a); }, "clusters of three blocks", 0, cluster_bytes_moved(a)};
    case Walk::one_block:
      return {[a] { one_block(a); }, "two chains per block", 0, one_block_bytes_moved(a)};
    default:
      break;
  }
  const tile::LaunchPlan plan = delta_rule::fastest_segments(a);
  return {[a, plan] { segments(a, plan); },
          plan.segments == 1 ? "a walk of warpgroups" : "walks of " + std::to_string(plan.segments) + " segments",
          segments_memory(a, plan), segments_bytes_moved(a, plan)};
}

/// The fastest of them. If that leaves multiprocessors idle, segments that need no past come first.
Choice fastest_on_warpgroups(const Bf16Arguments& a) {
  const FastestWalk fastest = fastest_walk(a);
  const tile::LaunchPlan plan = zero_start_segments(a, fastest);
  Choice exact = walk_of_warpgroups(a, fastest.walk);
  if (plan.segments == 1) return exact;
  const auto run = [a, plan, walk = fastest.walk] {
    zero_starts(a, plan, [&](const Bf16Arguments& rest) { walk_of_warpgroups(rest, walk).run(); });
  };
  return {run, std::to_string(plan.segments) + " segments from zeros, or " + exact.note,
          exact.memory + std::int64_t(a.B) * a.H * plan.segments * std::int64_t(sizeof(int))};
}

/// The walk of `tensor_core` in less shared memory, with some number of segments.
Choice walk_of_warps(const Bf16Arguments& a, const tile::LaunchPlan& plan) {
  const auto run = [a, plan] {
    const Prepared prepared = prepare(a);
    end_part("prepare");
    segmented_walk(a, prepared, plan);
  };
  return {run,
          plan.segments == 1 ? "tensor_core in less memory" : "walks of " + std::to_string(plan.segments) + " segments",
          prepared_memory(a) + segmented_walk_memory(a, plan), segmented_walk_bytes_moved(a, plan)};
}

/// @param why no kernel on bf16 supports the problem
Choice choose_in_fp32(const Bf16Arguments& a, const std::string& why) {
  if (a.Dk > delta_rule::kWidestInRegisters) {
    return {[a] { delta_rule::wide_keys(a, 1, a.g); }, "wide_keys in fp32: " + why, 0, -1,
            delta_rule::wide_keys_unsupported(a)};
  }
  const auto run = [a] {
    const Fp32Copies copies(
        a, workspace<float>("gated_delta_rule: q, k, v, o in fp32", std::size_t(Fp32Copies::count(a))));
    copies.load(a);
    recurrent_gpu(in_fp32(a, copies));
    copies.store(a);
  };
  Choice choice{run, "recurrent_gpu in fp32: " + why, std::int64_t(sizeof(float)) * Fp32Copies::count(a)};
  choice.unsupported = convert_unsupported(a.B, a.H, a.L);
  if (choice.unsupported.empty()) choice.unsupported = recurrent_gpu_unsupported(in_fp32(a, Fp32Copies(a, nullptr)));
  return choice;
}

/// The kernel that supports the problem and takes the least estimated time.
Choice choose(const Bf16Arguments& a) {
  if (warpgroups_unsupported(a).empty()) return fastest_on_warpgroups(a);
  if (const std::string why = tile::tensor_core_unsupported(a); !why.empty()) return choose_in_fp32(a, why);
  if (const auto plan = segmented_plan(a)) return walk_of_warps(a, *plan);
  return {[a] { tensor_core(a); }, "tensor_core", tensor_core_memory(a), tensor_core_bytes_moved(a)};
}

}  // namespace

void dispatch(const Bf16Arguments& a) {
  choose(a).run();
}

std::string dispatch_unsupported(const Bf16Arguments& a) {
  return choose(a).unsupported;
}

std::string dispatch_note(const Bf16Arguments& a) {
  return choose(a).note;
}

std::int64_t dispatch_memory(const Bf16Arguments& a) {
  return choose(a).memory;
}

std::int64_t dispatch_bytes_moved(const Bf16Arguments& a) {
  return choose(a).bytes_moved;
}

}  // namespace tutorial::gated_delta_rule
