/// @file
/// `dispatch`: what a user calls.
///
/// Idea: choose by what supports the problem. On Hopper that is `three_blocks`, `cluster` or `segments`, whichever
/// takes the least estimated time (fastest_walk.cpp); where keys are to be normalised it is `segments`. The number of
/// segments is delta_rule's choice; with one segment it is `warpgroup_chain`. On other GPUs, and with what these stages do
/// not support, it is the walk of dispatch/segmented_walk.cu if there are few heads or a block may have too little shared
/// memory for `tensor_core`, and else `tensor_core`. Then fp32, which is `recurrent_gpu` on copies of q, k and v, whose
/// result is copied back.
/// Improves on: `cluster` and `three_blocks` need Hopper, Dk <= 128 and keys that are normalised already. With few
/// heads they leave multiprocessors idle. Neither they nor `tensor_core` support widths that are no multiple of 16,
/// wide values, or rows that are not aligned.
/// Unchanged: the kernels, shapes and bytes of what it chooses.
/// Bound by, requires: as what it chooses.
/// Weakness: a strong gate makes what follows it independent of what was before, so a sequence could be cut there
/// without computing what a segment does to a state.

#include <cuda_runtime.h>

#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "05_deltanet_wy/gated_delta_rule/dispatch/segmented_walk.hpp"
#include "05_deltanet_wy/gated_delta_rule/segments.hpp"
#include "common/device/convert.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/requirements.hpp"

namespace tutorial::gated_delta_rule {
namespace {

using delta_rule::Walk;

/// q, k, v and o in fp32.
struct Copies {
  View<float> q, k, v, o;

  static std::int64_t count(const Bf16Arguments& a) {
    return 2 * std::int64_t(a.B) * a.H * a.L * (std::int64_t(a.Dk) + a.Dv);
  }
  /// @param memory of count() elements
  Copies(const Bf16Arguments& a, float* memory) {
    const std::int64_t rows = std::int64_t(a.B) * a.H * a.L;
    q = packed(memory, a.H, a.L, a.Dk);
    k = packed(q.data + rows * a.Dk, a.H, a.L, a.Dk);
    v = packed(k.data + rows * a.Dk, a.H, a.L, a.Dv);
    o = packed(v.data + rows * a.Dv, a.H, a.L, a.Dv);
  }
  Copies() = default;  // if only sizes are needed
};

/// The same problem in fp32.
FloatArguments in_fp32(const Bf16Arguments& a, const Copies& copies) {
  const auto read = [](const View<float>& x) { return View<const float>{x.data, x.stride_b, x.stride_h, x.stride_l}; };
  return {{a.B, a.H, a.L, a.Dk, a.Dv, a.C, a.scale, a.normalize_keys, read(copies.q), read(copies.k), read(copies.v),
           a.beta, a.initial_state, copies.o, a.final_state},
          a.g};
}

void compute_in_fp32(const Bf16Arguments& a) {
  const Copies copies(a, workspace<float>("gated_delta_rule: q, k, v, o in fp32", std::size_t(Copies::count(a))));
  convert(a.B, a.H, a.L, a.Dk, a.q, copies.q);
  convert(a.B, a.H, a.L, a.Dk, a.k, copies.k);
  convert(a.B, a.H, a.L, a.Dv, a.v, copies.v);
  recurrent_gpu(in_fp32(a, copies));
  convert(a.B, a.H, a.L, a.Dv, copies.o, a.o);
}

}  // namespace

void dispatch(const Bf16Arguments& a) {
  if (warpgroup_chain_unsupported(a).empty()) {
    const Walk walk = fastest_walk(a);
    if (walk == Walk::segments) return walk_segments(a, delta_rule::fastest_segments(a));
    return walk == Walk::cluster ? cluster(a) : three_blocks(a);
  }
  if (!tile::tensor_core_unsupported(a).empty()) return compute_in_fp32(a);
  const auto plan = segmented_plan(a);
  if (!plan) return tensor_core(a);
  const Prepared prepared = prepare(a);
  end_part("prepare");
  segmented_walk(a, prepared, *plan);
}

std::string dispatch_unsupported(const Bf16Arguments& a) {
  if (tile::tensor_core_unsupported(a).empty()) return "";
  if (const std::string unsupported = convert_unsupported(a.B, a.H, a.L); !unsupported.empty()) return unsupported;
  return recurrent_gpu_unsupported(in_fp32(a, {}));
}

std::string dispatch_note(const Bf16Arguments& a) {
  if (warpgroup_chain_unsupported(a).empty()) {
    const Walk walk = fastest_walk(a);
    if (walk != Walk::segments) return walk == Walk::cluster ? "clusters of two blocks" : "clusters of three blocks";
    const int segments = delta_rule::fastest_segments(a).segments;
    return segments == 1 ? "warpgroup_chain" : "walks of " + std::to_string(segments) + " segments";
  }
  const std::string unsupported = tile::tensor_core_unsupported(a);
  if (!unsupported.empty()) return "recurrent_gpu in fp32: " + unsupported;
  const auto plan = segmented_plan(a);
  if (!plan) return "tensor_core";
  return plan->segments == 1 ? "tensor_core in less memory"
                             : "walks of " + std::to_string(plan->segments) + " segments";
}

std::int64_t dispatch_memory(const Bf16Arguments& a) {
  if (warpgroup_chain_unsupported(a).empty()) {
    return fastest_walk(a) == Walk::segments ? walk_segments_memory(a, delta_rule::fastest_segments(a)) : 0;
  }
  if (tile::tensor_core_unsupported(a).empty()) {
    const auto plan = segmented_plan(a);
    return prepared_memory(a) + (plan ? segmented_walk_memory(a, *plan) : 0);
  }
  return std::int64_t(sizeof(float)) * Copies::count(a) + recurrent_gpu_memory(in_fp32(a, {}));
}

}  // namespace tutorial::gated_delta_rule
