/// @file
/// `dispatch` of kda on packed sequences: what a user calls.
///
/// Idea: on Hopper `middle_anchor`, in which a block walks a segment of a head of a sequence. Segments have a block's
/// share of all positions at most, and begin from zeros some chunks earlier where the gates have forgotten enough by then.
/// The longest come first (common/tile/packed_segments.cuh). Chunks begin with their sequence, and the last one's other
/// rows count as zeros (../../kda/dispatch/middle_anchor.cu). Behind it, `cluster` walks the heads of sequences whose gates
/// do not forget enough, or have no anchor.
/// Improves on: `dispatch` needs sequences of one length.
/// Unchanged: the kernels, and what they require.
/// Fallback: what they do not support is `dispatch` of each sequence, one after the other. Then the host reads cu_seqlens
/// and waits for it, which a CUDA graph that is being captured refuses.
/// Weakness: `cluster` walks such a head without segments, and the sequences in the order in which they lie.

#include <cuda_runtime.h>

#include "05_deltanet_wy/kda/dispatch/middle_anchor.hpp"
#include "05_deltanet_wy/packed_kda.hpp"
#include "common/tile/extents.hpp"
#include "common/tile/packed_plan.hpp"
#include "common/tile/sequences_alone.cuh"

namespace tutorial::kda {
namespace {

using namespace tile;

constexpr int kColumns = 128;        // of a block
constexpr int kShortest = 1024;      // positions of a segment: ten chunks of 32 before it may be walked, too
constexpr int kMostEntries = 65535;  // of a grid

PackedPlan plan_of(const PackedBf16Arguments& p) {
  Extents extents = extents_of(p.all);
  extents.H *= extents.B;
  return packed_plan(extents, p.N, kColumns, kShortest);
}

bool are_walked_at_once(const PackedBf16Arguments& p) {
  return one_anchor_unsupported(p.all).empty() && plan_of(p).entries() <= kMostEntries / p.all.B;
}

}  // namespace

void dispatch_packed(const PackedBf16Arguments& p) {
  if (are_walked_at_once(p)) return middle_anchor_packed(p, plan_of(p));
  for_each_sequence(p, [](const Bf16Arguments& a) { dispatch(a); });
}

std::string dispatch_packed_unsupported(const PackedBf16Arguments& p) {
  return are_walked_at_once(p) ? "" : dispatch_unsupported(p.all);
}

std::string dispatch_packed_note(const PackedBf16Arguments& p) {
  if (!are_walked_at_once(p)) return "one sequence after the other";
  const PackedPlan plan = plan_of(p);
  if (plan.states == 0) return "middle_anchor";
  return "middle_anchor, segments of " + std::to_string(plan.length) + " positions at most";
}

std::int64_t dispatch_packed_memory(const PackedBf16Arguments& p) {
  if (!are_walked_at_once(p)) return dispatch_memory(p.all);
  const std::int64_t heads = std::int64_t(p.N) * p.all.B * p.all.H;
  return plan_of(p).entries() * std::int64_t(sizeof(int4)) + heads * std::int64_t(sizeof(int));
}

}  // namespace tutorial::kda
