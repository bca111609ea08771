/// @file
/// `dispatch` of the gradients of packed sequences: what a user calls.
///
/// Idea: the walks of `pipelined` in the segments of simple_gla_packed, which begin where the sequences do, longest first.
/// S and dS are carried over the same borders, in both directions, and dg starts anew at each border as in `segments`.
/// Improves on: `dispatch` of --backward needs sequences of one length.
/// Unchanged: the walks, and what they require.
/// Fallback: what they do not support is computed by that dispatch, one sequence after the other. Then the host reads
/// cu_seqlens and waits for it, which a CUDA graph that is being captured refuses.
/// Weakness: on Hopper these are not yet the walks of warpgroups, and the three of them are three launches.

#include <cuda_runtime.h>

#include <algorithm>

#include "04_fused_chunk/simple_gla_backward/requirements.hpp"
#include "04_fused_chunk/simple_gla_backward/segment_plan.hpp"
#include "04_fused_chunk/simple_gla_packed_backward/dispatch/walks.hpp"
#include "common/tile/sequences_alone.cuh"

namespace tutorial::simple_gla {
namespace {

using namespace tile;

constexpr int kShortest = 16 * 64;  // positions of a segment: a shorter walk ends before states were carried
constexpr int kColumns = 64;        // of a block

PackedPlan plan_of(const PackedBf16BackwardArguments& p) {
  const Bf16BackwardArguments& b = p.all;
  const int widest = std::max(b.Dk, b.Dv);  // of the three walks
  PackedPlan plan = packed_plan({b.B, b.H, b.L, widest, widest}, p.N, kColumns, kShortest);
  plan.length = std::min(plan.length, kLongest);
  plan.states = (b.L - 1) / plan.length;
  return plan;
}

}  // namespace

void dispatch_packed_backward(const PackedBf16BackwardArguments& p) {
  if (pipelined_backward_unsupported(p.all).empty()) return packed_gradient_walks(p, plan_of(p));
  for_each_sequence(p, dispatch_backward);
}

std::string dispatch_packed_backward_unsupported(const PackedBf16BackwardArguments& p) {
  const Bf16BackwardArguments& b = p.all;
  if (!pipelined_backward_unsupported(b).empty()) return dispatch_backward_unsupported(b);
  return packed_plan_unsupported({b.B, b.H, b.L, b.Dk, std::max(b.Dk, b.Dv)}, plan_of(p));
}

std::string dispatch_packed_backward_note(const PackedBf16BackwardArguments& p) {
  if (const std::string reason = pipelined_backward_unsupported(p.all); !reason.empty()) {
    return "one sequence after the other: " + reason;
  }
  const PackedPlan plan = plan_of(p);
  return plan.states > 0 ? "packed, segments of " + std::to_string(plan.length) + " positions at most" : "packed";
}

std::int64_t dispatch_packed_backward_memory(const PackedBf16BackwardArguments& p) {
  if (!pipelined_backward_unsupported(p.all).empty()) return dispatch_backward_memory(p.all);
  return packed_gradient_walks_memory(p, plan_of(p));
}

}  // namespace tutorial::simple_gla
