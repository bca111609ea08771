/// @file
/// `dispatch` of delta_rule on packed sequences: what a user calls.
///
/// Idea: on Hopper `one_block`, in which a block walks a head of a sequence, the longest sequences first
/// (05_deltanet_wy/chunk/packed_heads.cuh). Chunks begin with their sequence. Bulk copies load whole ones, so the last
/// chunk arrives with rows of the next sequence. The warp that loads clears these rows of K and V. beta and g count as
/// zeros there, so T has no such columns, and nothing is added to the state. Outputs of such a chunk are stored row by row.
/// Improves on: `dispatch` needs sequences of one length.
/// Unchanged: the kernel, and what it requires.
/// On other GPUs, for wider keys and for keys that are to be normalised, the problem is one of gated_delta_rule with gates of
/// 1, which change nothing: it has a walk of each sequence with `mma`. All positions share one gate, as a tensor with
/// strides of 0.
/// Fallback: what neither supports is `dispatch` of each sequence, one after the other. Then the host reads cu_seqlens and
/// waits for it, which a CUDA graph that is being captured refuses.
/// Weakness: a block that walks a long sequence alone is still walking when others are done, if heads are few.

#include <cuda_runtime.h>

#include "05_deltanet_wy/delta_rule/dispatch/requirements.hpp"
#include "05_deltanet_wy/delta_rule_packed/dispatch/one_block.hpp"
#include "05_deltanet_wy/gated_delta_rule_packed/dispatch/walks.hpp"
#include "common/device/error.hpp"
#include "common/device/stream.hpp"
#include "common/device/workspace.hpp"
#include "common/tile/sequences_alone.cuh"

namespace tutorial::delta_rule {
namespace {

constexpr int kMostEntries = 65535;  // of a grid

bool is_by_warpgroups(const PackedBf16Arguments& p) {
  return warpgroup_chain_unsupported(p.all).empty() && p.N <= kMostEntries / p.all.B;
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
  if (is_by_warpgroups(p)) return one_block_packed(p);
  if (!walk_unsupported(p).empty()) return tile::for_each_sequence(p, [](const Bf16Arguments& a) { dispatch(a); });
  auto* gate = workspace<float>("delta_rule: a gate of 1", 1);
  check(cudaMemsetAsync(gate, 0, sizeof(float), current_stream()));
  gated_delta_rule::walk_packed(with_gates(p, gate));
}

std::string dispatch_packed_unsupported(const PackedBf16Arguments& p) {
  return is_by_warpgroups(p) || walk_unsupported(p).empty() ? "" : dispatch_unsupported(p.all);
}

std::string dispatch_packed_note(const PackedBf16Arguments& p) {
  if (is_by_warpgroups(p)) return "two chains per block, the longest sequences first";
  const std::string reason = walk_unsupported(p);
  return reason.empty() ? "gated_delta_rule's walk of each sequence, with gates of 1"
                        : "one sequence after the other: " + reason;
}

std::int64_t dispatch_packed_memory(const PackedBf16Arguments& p) {
  if (is_by_warpgroups(p)) return p.N * std::int64_t(sizeof(int4));
  if (!walk_unsupported(p).empty()) return dispatch_memory(p.all);
  return gated_delta_rule::walk_packed_memory(with_gates(p, nullptr)) + std::int64_t(sizeof(float));
}

}  // namespace tutorial::delta_rule
