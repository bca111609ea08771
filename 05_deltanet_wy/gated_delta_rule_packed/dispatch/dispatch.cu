/// @file
/// `dispatch` of gated_delta_rule on packed sequences: what a user calls.
///
/// Idea: on Hopper `one_block`, in which a block walks a segment of a head of a sequence, the longest first. A segment has
/// a block's share of all positions at most, and begins from zeros some chunks earlier where the gates have forgotten
/// enough by then. Behind it, `one_block` walks the heads of sequences whose gates do not. Chunks begin with their
/// sequence, and what the last one has of the next sequence counts as zeros, as in delta_rule's
/// (../../delta_rule_packed/dispatch/dispatch.cu); so do its gates.
/// Improves on: `dispatch` needs sequences of one length.
/// Unchanged: the kernel, and what it requires.
/// On other GPUs, for wider keys and for keys that are to be normalised, a kernel prepares all chunks and another one walks
/// each sequence, with `mma` (../../delta_rule/dispatch/segmented_walk.cuh).
/// Fallback: what neither supports is `dispatch` of each sequence, one after the other. Then the host reads cu_seqlens and
/// waits for it, which a CUDA graph that is being captured refuses.
/// Weakness: where gates do not forget, a block that walks a long sequence alone is still walking when others are done.

#include <cuda_runtime.h>

#include "05_deltanet_wy/gated_delta_rule_packed/dispatch/walks.hpp"
#include "common/tile/extents.hpp"
#include "common/tile/packed_plan.hpp"
#include "common/tile/sequences_alone.cuh"

namespace tutorial::gated_delta_rule {
namespace {

constexpr int kColumns = 128;        // of a block
constexpr int kShortest = 1024;      // positions of a segment: eight chunks before it may be walked, too
constexpr int kMostEntries = 65535;  // of a grid

tile::PackedPlan plan_of(const PackedBf16Arguments& p) {
  tile::Extents extents = tile::extents_of(p.all);
  extents.H *= extents.B;
  return tile::packed_plan(extents, p.N, kColumns, kShortest);
}

bool is_by_warpgroups(const PackedBf16Arguments& p) {
  return cluster_unsupported(p.all).empty() && plan_of(p).entries() <= kMostEntries / p.all.B;
}

}  // namespace

void dispatch_packed(const PackedBf16Arguments& p) {
  if (is_by_warpgroups(p)) return one_block_packed(p, plan_of(p));
  if (walk_packed_unsupported(p).empty()) return walk_packed(p);
  tile::for_each_sequence(p, [](const Bf16Arguments& a) { dispatch(a); });
}

std::string dispatch_packed_unsupported(const PackedBf16Arguments& p) {
  return is_by_warpgroups(p) || walk_packed_unsupported(p).empty() ? "" : dispatch_unsupported(p.all);
}

std::string dispatch_packed_note(const PackedBf16Arguments& p) {
  if (!is_by_warpgroups(p)) {
    const std::string reason = walk_packed_unsupported(p);
    return reason.empty() ? "a walk of each sequence" : "one sequence after the other: " + reason;
  }
  const tile::PackedPlan plan = plan_of(p);
  if (plan.states == 0) return "two chains per block";
  return "two chains per block, segments of " + std::to_string(plan.length) + " positions at most";
}

std::int64_t dispatch_packed_memory(const PackedBf16Arguments& p) {
  if (!is_by_warpgroups(p)) {
    return walk_packed_unsupported(p).empty() ? walk_packed_memory(p) : dispatch_memory(p.all);
  }
  const std::int64_t heads = std::int64_t(p.N) * p.all.B * p.all.H;
  return plan_of(p).entries() * std::int64_t(sizeof(int4)) + heads * std::int64_t(sizeof(int));
}

}  // namespace tutorial::gated_delta_rule
