/// @file
/// `dispatch` of delta_rule on packed sequences: what a user calls.
///
/// Idea: on Hopper `one_block`, in which a block walks a head of a sequence, the longest sequences first
/// (05_deltanet_wy/chunk/packed_heads.cuh). Chunks begin with their sequence. Bulk copies load whole ones, so the last
/// chunk arrives with rows of the next sequence. The warp that loads clears these rows of K and V. beta and g count as
/// zeros there, so T has no such columns, and nothing is added to the state. Outputs of such a chunk are stored row by row.
/// Improves on: `dispatch` needs sequences of one length.
/// Unchanged: the kernel, and what it requires.
/// Fallback: what it does not support is `dispatch` of each sequence, one after the other. Then the host reads cu_seqlens
/// and waits for it, which a CUDA graph that is being captured refuses.
/// Weakness: a block that walks a long sequence alone is still walking when others are done, if heads are few.

#include <cuda_runtime.h>

#include "05_deltanet_wy/delta_rule/dispatch/requirements.hpp"
#include "05_deltanet_wy/delta_rule_packed/dispatch/one_block.hpp"
#include "common/tile/sequences_alone.cuh"

namespace tutorial::delta_rule {
namespace {

constexpr int kMostEntries = 65535;  // of a grid

bool are_walked_at_once(const PackedBf16Arguments& p) {
  return warpgroup_chain_unsupported(p.all).empty() && p.N <= kMostEntries / p.all.B;
}

}  // namespace

void dispatch_packed(const PackedBf16Arguments& p) {
  if (are_walked_at_once(p)) return one_block_packed(p);
  tile::for_each_sequence(p, [](const Bf16Arguments& a) { dispatch(a); });
}

std::string dispatch_packed_unsupported(const PackedBf16Arguments& p) {
  return are_walked_at_once(p) ? "" : dispatch_unsupported(p.all);
}

std::string dispatch_packed_note(const PackedBf16Arguments& p) {
  return are_walked_at_once(p) ? "two chains per block, the longest sequences first" : "one sequence after the other";
}

std::int64_t dispatch_packed_memory(const PackedBf16Arguments& p) {
  return are_walked_at_once(p) ? p.N * std::int64_t(sizeof(int4)) : dispatch_memory(p.all);
}

}  // namespace tutorial::delta_rule
