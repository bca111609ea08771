/// @file
/// `dispatch` of the gradients of packed sequences: what a user calls.
///
/// Idea: the three walks of --backward in the segments of linear_attention_packed, which begin where the sequences do,
/// longest first. S is carried over the borders of segments from the beginning of each sequence, dS from its end.
/// Improves on: `dispatch` of --backward needs sequences of one length.
/// Unchanged: the walks of mma by warps, and what they require.
/// Fallback: what they do not support is computed by that dispatch, one sequence after the other. Then the host reads
/// cu_seqlens and waits for it, which a CUDA graph that is being captured refuses.
/// Weakness: on Hopper these are not yet the walks of warpgroups, and the three of them are three launches.

#include <cuda_runtime.h>

#include <algorithm>

#include "02_chunkwise/linear_attention_backward/requirements.hpp"
#include "02_chunkwise/linear_attention_packed_backward/dispatch/walks.hpp"
#include "common/tile/block_columns.hpp"
#include "common/tile/sequences_alone.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kShortest = 16 * 64;  // positions of a segment: a shorter walk ends before states were carried

PackedPlan plan_of(const PackedBf16BackwardArguments& p) {
  const Bf16BackwardArguments& b = p.all;
  const Extents widest{b.B, b.H, b.L, std::max(b.Dk, b.Dv), std::max(b.Dk, b.Dv)};  // of the three walks
  return packed_plan(widest, p.N, widest_tile(widest), kShortest);
}

}  // namespace

void dispatch_packed_backward(const PackedBf16BackwardArguments& p) {
  if (gradients_unsupported(p.all).empty()) return packed_gradient_walks(p, plan_of(p));
  for_each_sequence(p, dispatch_backward);
}

std::string dispatch_packed_backward_unsupported(const PackedBf16BackwardArguments& p) {
  if (!gradients_unsupported(p.all).empty()) return dispatch_backward_unsupported(p.all);
  const Bf16BackwardArguments& b = p.all;
  return packed_plan_unsupported({b.B, b.H, b.L, b.Dk, std::max(b.Dk, b.Dv)}, plan_of(p));
}

std::string dispatch_packed_backward_note(const PackedBf16BackwardArguments& p) {
  if (const std::string reason = gradients_unsupported(p.all); !reason.empty()) {
    return "one sequence after the other: " + reason;
  }
  const PackedPlan plan = plan_of(p);
  return (plan.states > 0 ? "packed, segments of " + std::to_string(plan.length) + " positions at most, "
                          : "packed, ") +
         std::to_string(plan.columns) + " columns per block";
}

std::int64_t dispatch_packed_backward_memory(const PackedBf16BackwardArguments& p) {
  if (!gradients_unsupported(p.all).empty()) return dispatch_backward_memory(p.all);
  const PackedPlan plan = plan_of(p);
  const Bf16BackwardArguments& b = p.all;
  return packed_plan_memory(extents_of(b), plan) +
         std::int64_t(sizeof(float)) * plan.states * b.H * b.Dk * b.Dv;  // dS beside S
}

}  // namespace tutorial::linear_attention
