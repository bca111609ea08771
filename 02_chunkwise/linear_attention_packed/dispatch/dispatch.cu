/// @file
/// `dispatch` on packed sequences: what a user calls.
///
/// Idea: on Hopper the walk of hopper_walk.cu, elsewhere the one of `packed`. A segment has a block's share of all
/// positions, and no less than kShortest: a shorter walk ends before the states of two segments were computed and carried.
/// Improves on: `packed` cuts sequences of some hundred positions, too, if there are few of them.
/// Unchanged: the kernels, shapes and bytes.
/// Fallback: if the tensor-core kernels do not support a width, or rows are not aligned, `fused` computes one sequence after
/// the other in fp32, on copies of q, k, v and o. Then the host reads cu_seqlens and waits for it, which a CUDA graph that
/// is being captured refuses.
/// Weakness: the host does not know the lengths. So the first two kernels of the segments are launched even if no sequence
/// turns out to be longer than a segment.

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention/requirements.hpp"
#include "02_chunkwise/linear_attention_packed/dispatch/walks.hpp"
#include "02_chunkwise/packed.hpp"
#include "common/device/fp32_copies.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/block_columns.hpp"
#include "common/tile/sequences_alone.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kShortest = 16 * 64;  // positions of a segment
constexpr int kHopperColumns = 64;

bool is_by_warpgroups(const PackedBf16Arguments& p) {
  return warpgroup_mma_unsupported(p.all).empty();
}

PackedPlan plan_of(const PackedBf16Arguments& p) {
  const Extents extents = extents_of(p.all);
  return packed_plan(extents, p.N, is_by_warpgroups(p) ? kHopperColumns : widest_tile(extents), kShortest);
}

FloatArguments in_fp32(const Bf16Arguments& a, const Fp32Copies& copies) {
  return {a.B,
          a.H,
          a.L,
          a.Dk,
          a.Dv,
          a.C,
          a.scale,
          read_only(copies.q),
          read_only(copies.k),
          read_only(copies.v),
          a.initial_state,
          copies.o,
          a.final_state};
}

void fused_one_by_one(const PackedBf16Arguments& p) {
  const Bf16Arguments& a = p.all;
  const auto elements = std::size_t(Fp32Copies::count(a));
  const Fp32Copies copies(a, workspace<float>("linear_attention: q, k, v, o in fp32", elements));
  copies.load(a);
  for_each_sequence(PackedFloatArguments{in_fp32(a, copies), p.cu_seqlens, p.N}, fused);
  copies.store(a);
}

}  // namespace

void dispatch_packed(const PackedBf16Arguments& p) {
  if (!tensor_core_unsupported(p.all).empty()) return fused_one_by_one(p);
  is_by_warpgroups(p) ? hopper_packed(p, plan_of(p)) : packed_walk(p, plan_of(p));
}

std::string dispatch_packed_unsupported(const PackedBf16Arguments& p) {
  const Bf16Arguments& a = p.all;
  if (tensor_core_unsupported(a).empty()) return packed_plan_unsupported(extents_of(a), plan_of(p));
  if (const std::string reason = convert_unsupported(a.B, a.H, a.L); !reason.empty()) return reason;
  return fused_unsupported(in_fp32(a, Fp32Copies(a, nullptr)));
}

std::string dispatch_packed_note(const PackedBf16Arguments& p) {
  if (const std::string reason = tensor_core_unsupported(p.all); !reason.empty()) {
    return "fused in fp32, one sequence after the other: " + reason;
  }
  const PackedPlan plan = plan_of(p);
  const std::string length = std::to_string(plan.length), columns = std::to_string(plan.columns);
  return std::string(is_by_warpgroups(p) ? "warpgroups" : "packed") +
         (plan.states > 0 ? ", segments of " + length + " positions at most, " : ", ") + columns + " columns per block";
}

std::int64_t dispatch_packed_memory(const PackedBf16Arguments& p) {
  if (tensor_core_unsupported(p.all).empty()) return packed_plan_memory(extents_of(p.all), plan_of(p));
  return std::int64_t(sizeof(float)) * Fp32Copies::count(p.all);
}

}  // namespace tutorial::linear_attention
