/// @file
/// `dispatch` of delta_rule on packed sequences: what a user calls.
///
/// Idea: on Hopper `one_block`, in which a block walks a head of a sequence, the longest sequences first
/// (05_deltanet_wy/chunk/packed_heads.cuh). Chunks begin with their sequence. Bulk copies load whole ones, so the last
/// chunk arrives with rows of the next sequence. The warp that loads clears these rows of K and V. beta and g count as
/// zeros there, so T has no such columns, and nothing is added to the state. Outputs of such a chunk are stored row by row.
/// Improves on: `dispatch` needs sequences of one length.
/// Unchanged: the kernel, and what it requires.
/// With few heads, long sequences are cut (segments.cu). The host does not know how long each sequence is, so the number of
/// heads decides: maps and walk take three times the operations, and a sequence that is as long as all together must not
/// wait for a block that walks it alone.
/// On other GPUs, for wider keys and for keys that are to be normalised, the problem is one of gated_delta_rule with gates of
/// 1, which change nothing: it has a walk of each sequence with `mma`. All positions share one gate, as a tensor with
/// strides of 0.
/// Fallback: what neither supports is `dispatch` of each sequence, one after the other. Then the host reads cu_seqlens and
/// waits for it, which a CUDA graph that is being captured refuses.
/// Weakness: with 23 to 66 heads of an H100, a block that walks a long sequence alone is still walking when others are done.

#include <cuda_runtime.h>

#include "05_deltanet_wy/delta_rule/dispatch/requirements.hpp"
#include "05_deltanet_wy/delta_rule_packed/dispatch/one_block.hpp"
#include "05_deltanet_wy/delta_rule_packed/dispatch/segments.hpp"
#include "05_deltanet_wy/gated_delta_rule_packed/dispatch/walks.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/device/error.hpp"
#include "common/device/stream.hpp"
#include "common/device/workspace.hpp"
#include "common/tile/extents.hpp"
#include "common/tile/packed_plan.hpp"
#include "common/tile/sequences_alone.cuh"

namespace tutorial::delta_rule {
namespace {

constexpr int kMostEntries = 65535;  // of a grid
constexpr int kColumns = 128;        // of a block
constexpr int kShortest = 1024;      // positions of a segment that another one follows

bool is_by_warpgroups(const PackedBf16Arguments& p) {
  return warpgroup_chain_unsupported(p.all).empty() && p.N <= kMostEntries / p.all.B;
}

tile::PackedPlan plan_of(const PackedBf16Arguments& p) {
  return tile::packed_plan(tile::extents_of(p.all), p.N, kColumns, kShortest);
}

/// Whether heads are so few that sequences are cut: six blocks walk at once for each head.
bool is_cut(const PackedBf16Arguments& p) {
  const int blocks = p.all.H * ceil_div(p.all.Dv, kColumns);
  const tile::PackedPlan plan = plan_of(p);
  return p.all.B == 1 && plan.states > 0 && plan.entries() <= kMostEntries && 6 * blocks <= multiprocessor_count();
}

/// @param gate whose logarithm is 0
gated_delta_rule::PackedBf16Arguments with_gates(const PackedBf16Arguments& p, const float* gate) {
  return {{p.all, {gate, 0, 0, 0}}, p.cu_seqlens, p.N};
}

std::string walk_unsupported(const PackedBf16Arguments& p) {
  return gated_delta_rule::walk_packed_unsupported(with_gates(p, nullptr));
}

}  // namespace

void dispatch_packed(const PackedBf16Arguments& p) {
  if (is_by_warpgroups(p)) return is_cut(p) ? segments_packed(p, plan_of(p)) : one_block_packed(p);
  if (!walk_unsupported(p).empty()) return tile::for_each_sequence(p, [](const Bf16Arguments& a) { dispatch(a); });
  auto* gate = workspace<float>("delta_rule: a gate of 1", 1);
  check(cudaMemsetAsync(gate, 0, sizeof(float), current_stream()));
  gated_delta_rule::walk_packed(with_gates(p, gate));
}

std::string dispatch_packed_unsupported(const PackedBf16Arguments& p) {
  return is_by_warpgroups(p) || walk_unsupported(p).empty() ? "" : dispatch_unsupported(p.all);
}

std::string dispatch_packed_note(const PackedBf16Arguments& p) {
  if (is_by_warpgroups(p) && is_cut(p)) {
    return "two chains per block, segments of " + std::to_string(plan_of(p).length) + " positions at most";
  }
  if (is_by_warpgroups(p)) return "two chains per block, the longest sequences first";
  const std::string reason = walk_unsupported(p);
  return reason.empty() ? "gated_delta_rule's walk of each sequence, with gates of 1"
                        : "one sequence after the other: " + reason;
}

std::int64_t dispatch_packed_memory(const PackedBf16Arguments& p) {
  if (is_by_warpgroups(p)) {
    return is_cut(p) ? segments_packed_memory(p, plan_of(p)) : p.N * std::int64_t(sizeof(int4));
  }
  if (!walk_unsupported(p).empty()) return dispatch_memory(p.all);
  return gated_delta_rule::walk_packed_memory(with_gates(p, nullptr)) + std::int64_t(sizeof(float));
}

}  // namespace tutorial::delta_rule
