/// @file
/// `dispatch` of the gradients of packed sequences: what a user calls.
///
/// Idea: gates of 1 change nothing. With them the problem is one of gated_delta_rule, whose kernels for packed sequences
/// compute it. All positions share one gate, as a tensor with strides of 0. The gradient of the gates goes to memory that
/// nobody reads.
/// Improves on: `dispatch` of --backward needs sequences of one length.
/// Unchanged: the products, and what they require.
/// Fallback: what those kernels do not support is computed by that dispatch, one sequence after the other. Then the host
/// reads cu_seqlens and waits for it, which a CUDA graph that is being captured refuses.
/// Weakness: the decays are multiplied though they are 1, and the gates' gradient is added up. On Hopper these are not yet
/// the walks of warpgroups, nor segments where few sequences are long.

#include <cuda_runtime.h>

#include <climits>

#include "05_deltanet_wy/packed_gradients.hpp"
#include "common/device/error.hpp"
#include "common/device/stream.hpp"
#include "common/device/workspace.hpp"
#include "common/tile/sequences_alone.cuh"

namespace tutorial::delta_rule {
namespace {

/// Of one gate and a gradient for each position.
std::int64_t elements(const PackedBf16BackwardArguments& p) {
  return 1 + std::int64_t(p.all.B) * p.all.H * p.all.L;
}

/// @param memory elements() numbers, or null if only sizes matter
gated_delta_rule::PackedBf16BackwardArguments as_gated(const PackedBf16BackwardArguments& p, float* memory) {
  float* gradients = memory ? memory + 1 : nullptr;
  return {{p.all, {memory, 0, 0, 0}, packed(gradients, p.all.H, p.all.L, 1), {}}, p.cu_seqlens, p.N};
}

std::string why_alone(const PackedBf16BackwardArguments& p) {
  return gated_delta_rule::tensor_core_backward_unsupported(as_gated(p, nullptr).all);
}

}  // namespace

void dispatch_packed_backward(const PackedBf16BackwardArguments& p) {
  if (!why_alone(p).empty()) return tile::for_each_sequence(p, dispatch_backward);
  auto* memory = workspace<float>("delta_rule --backward: a gate of 1", std::size_t(elements(p)));
  check(cudaMemsetAsync(memory, 0, sizeof(float), current_stream()));  // its logarithm
  gated_delta_rule::packed_tensor_core_backward(as_gated(p, memory));
}

std::string dispatch_packed_backward_unsupported(const PackedBf16BackwardArguments& p) {
  if (!why_alone(p).empty()) return dispatch_backward_unsupported(p.all);
  return gated_delta_rule::dispatch_packed_backward_unsupported(as_gated(p, nullptr));
}

std::string dispatch_packed_backward_note(const PackedBf16BackwardArguments& p) {
  const std::string reason = why_alone(p);
  return reason.empty() ? "gated_delta_rule's tensor_core, with gates of 1" : "one sequence after the other: " + reason;
}

std::int64_t dispatch_packed_backward_memory(const PackedBf16BackwardArguments& p) {
  if (!why_alone(p).empty()) return dispatch_backward_memory(p.all);
  return gated_delta_rule::packed_tensor_core_backward_memory(as_gated(p, nullptr)) +
         std::int64_t(sizeof(float)) * elements(p);
}

}  // namespace tutorial::delta_rule
