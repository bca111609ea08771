/// @file
/// `dispatch` of the gradients of packed sequences: what a user calls.
///
/// Idea: the kernels of `tensor_core`. What is computed chunk by chunk has a block for each chunk of each sequence, which
/// finds its sequence from its number (common/tile/packed_chunks.cuh). The two walks have blocks for each sequence, those of
/// the longest first.
/// Improves on: `dispatch` of --backward needs sequences of one length.
/// Unchanged: the products, and what they require.
/// Fallback: what they do not support is computed by that dispatch, one sequence after the other. Then the host reads
/// cu_seqlens and waits for it, which a CUDA graph that is being captured refuses.
/// Weakness: on Hopper these are not yet the walks of warpgroups, nor segments where few sequences are long.

#include <cuda_runtime.h>

#include <climits>

#include "05_deltanet_wy/packed_gradients.hpp"
#include "common/tile/sequences_alone.cuh"

namespace tutorial::gated_delta_rule {

void dispatch_packed_backward(const PackedBf16BackwardArguments& p) {
  if (tensor_core_backward_unsupported(p.all).empty()) return packed_tensor_core_backward(p);
  tile::for_each_sequence(p, dispatch_backward);
}

std::string dispatch_packed_backward_unsupported(const PackedBf16BackwardArguments& p) {
  constexpr int kMostBlocks = 8;  // of a sequence and head
  if (!tensor_core_backward_unsupported(p.all).empty()) return dispatch_backward_unsupported(p.all);
  return p.N <= INT_MAX / kMostBlocks - p.all.L / 64 ? "" : "more than 2^31 - 1 blocks: the grid";
}

std::string dispatch_packed_backward_note(const PackedBf16BackwardArguments& p) {
  const std::string reason = tensor_core_backward_unsupported(p.all);
  return reason.empty() ? "tensor_core" : "one sequence after the other: " + reason;
}

std::int64_t dispatch_packed_backward_memory(const PackedBf16BackwardArguments& p) {
  if (!tensor_core_backward_unsupported(p.all).empty()) return dispatch_backward_memory(p.all);
  return packed_tensor_core_backward_memory(p);
}

}  // namespace tutorial::gated_delta_rule
