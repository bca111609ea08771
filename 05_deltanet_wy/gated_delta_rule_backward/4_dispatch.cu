/// @file
/// `dispatch`: what a user calls. It adds no product of its own. It supports widths and rows that `tensor_core` does
/// not.
///
/// Idea: as in `dispatch` of `delta_rule`, copies with more columns, which are zeros, make every problem up to Dk = Dv =
/// 256 one that `tensor_core` supports. Gates need no copy.
/// Grows out of: 3_tensor_core.cu; dispatch: the kernels are those of `tensor_core`, and this file prepares their
/// tensors
/// Improves on: `tensor_core` does not support widths that are no multiple of 16 or rows that are not aligned, nor
/// normalised keys where a block does not have all of Dk.
/// Unchanged: the products.
/// Equation: those of `tensor_core`; where the copy of k is normalised, dk as in `dispatch` of `delta_rule`.
/// Shapes: those of `tensor_core`; copies [B, H, L, 16 ceil(D / 16)] bf16, and of states fp32.
/// Thread mapping: in the copies block (4 rows, h, b), a warp per row.
/// Bytes: where copies are needed, each of q, k, v, do and the gradients is read and written once more.
/// Bound by: as `tensor_core`.
/// Requires: Dk and Dv up to 256.
/// Fallback: none; a wider problem is for `chunkwise`.
/// Weakness: keys that the copy normalises are rounded to bf16 afterwards. `tensor_core` normalises in fp32.

#include "05_deltanet_wy/delta_rule_backward/dispatch/copies.hpp"
#include "05_deltanet_wy/gated_delta_rule_backward.hpp"

namespace tutorial::gated_delta_rule {
namespace {

using namespace delta_rule;  // copies

/// Whether tensor_core on copies could not normalise the keys itself.
bool normalizes(const Bf16BackwardArguments& g) {
  return g.normalize_keys && !tensor_core_backward_unsupported(sizes_of_copies(g, false)).empty();
}

}  // namespace

void dispatch_backward(const Bf16BackwardArguments& g) {
  if (tensor_core_backward_unsupported(g).empty()) return tensor_core_backward(g);
  on_copies("gated_delta_rule --backward: copies", g, normalizes(g),
            [](const Bf16BackwardArguments& p) { tensor_core_backward(p); });
}

std::string dispatch_backward_unsupported(const Bf16BackwardArguments& g) {
  if (tensor_core_backward_unsupported(g).empty()) return "";
  return tensor_core_backward_unsupported(sizes_of_copies(g, normalizes(g)));
}

std::string dispatch_backward_note(const Bf16BackwardArguments& g) {
  const std::string reason = tensor_core_backward_unsupported(g);
  return reason.empty() ? "tensor_core" : "tensor_core on copies: " + reason;
}

std::int64_t dispatch_backward_memory(const Bf16BackwardArguments& g) {
  if (tensor_core_backward_unsupported(g).empty()) return tensor_core_backward_memory(g);
  return tensor_core_backward_memory(sizes_of_copies(g, normalizes(g))) + memory_of_copies(g);
}

}  // namespace tutorial::gated_delta_rule
