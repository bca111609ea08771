/// @file
/// `dispatch` of the gradients of packed sequences: what a user calls.
///
/// Idea: the kernels of `materialized`. What is computed chunk by chunk has a block for each chunk of each sequence, which
/// finds its sequence from its number (common/tile/packed_chunks.cuh). The states have a block for each sequence, the
/// longest first.
/// Improves on: `dispatch` of --backward needs sequences of one length.
/// Unchanged: the kernels, and what they require.
/// Fallback: what they do not support is computed by that dispatch, one sequence after the other. Then the host reads
/// cu_seqlens and waits for it, which a CUDA graph that is being captured refuses.
/// Weakness: on Hopper these are not yet the warpgroups of `one_anchor`. A block has all states of a sequence, however long
/// it is.

#include <cuda_runtime.h>

#include <climits>

#include "03_gla/gla_backward/requirements.hpp"
#include "03_gla/gla_packed_backward/dispatch/materialized.hpp"
#include "common/tile/sequences_alone.cuh"

namespace tutorial::gla {

void dispatch_packed_backward(const PackedBf16BackwardArguments& p) {
  if (materialized_backward_unsupported(p.all).empty()) return packed_materialized_backward(p);
  tile::for_each_sequence(p, [](const Bf16BackwardArguments& a) { dispatch_backward(a); });
}

std::string dispatch_packed_backward_unsupported(const PackedBf16BackwardArguments& p) {
  constexpr int kMostBlocks = 8;  // of a sequence and head, for Dk and Dv up to 128
  if (!materialized_backward_unsupported(p.all).empty()) return dispatch_backward_unsupported(p.all);
  return p.N <= INT_MAX / kMostBlocks - p.all.L / 64 ? "" : "more than 2^31 - 1 blocks: the grid";
}

std::string dispatch_packed_backward_note(const PackedBf16BackwardArguments& p) {
  const std::string reason = materialized_backward_unsupported(p.all);
  return reason.empty() ? "materialized" : "one sequence after the other: " + reason;
}

std::int64_t dispatch_packed_backward_memory(const PackedBf16BackwardArguments& p) {
  if (!materialized_backward_unsupported(p.all).empty()) return dispatch_backward_memory(p.all);
  return packed_materialized_backward_memory(p);
}

}  // namespace tutorial::gla
