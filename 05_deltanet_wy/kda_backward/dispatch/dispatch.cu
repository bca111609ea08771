/// @file
/// `dispatch`: what a user calls. It adds no product of its own. It supports widths and rows that `tensor_core` does
/// not.
///
/// Idea: as in `dispatch` of `delta_rule`, copies with more columns make every problem up to Dk = Dv = 128 one that
/// `tensor_core` supports. The columns are zeros; for g that means gates of 1. Wider problems, and all where the tiles
/// do not fit into a block's shared memory, are computed in fp32, position after position.
/// Improves on: `tensor_core` does not support widths that are no multiple of 16 or rows that are not aligned.
/// Unchanged: the products.
/// Equation: those of `tensor_core`.
/// Shapes: those of `tensor_core`; copies [B, H, L, 16 ceil(D / 16)] bf16, and of g, dg and states fp32.
/// Thread mapping: in the copies block (4 rows, h, b), a warp per row.
/// Bytes: where copies are needed, each of q, k, v, g, do and the gradients is read and written once more.
/// Bound by: as `tensor_core`.
/// Requires: Dk up to 256.
/// Fallback: delta_rule_backward/dispatch/in_fp32.cu. A problem with a larger Dk is for `chunkwise`.
/// Weakness: one narrow column more may cost as much as 15.

#include "05_deltanet_wy/delta_rule_backward/dispatch/copies.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/in_fp32.hpp"
#include "05_deltanet_wy/kda_backward.hpp"

namespace tutorial::kda {
namespace {

using namespace delta_rule;  // copies

/// Why `tensor_core` does not support copies of the tensors; empty if it does.
std::string copies_unsupported(const Bf16BackwardArguments& g) {
  return kda::tensor_core_backward_unsupported(sizes_of_copies(g, false));
}

}  // namespace

void dispatch_backward(const Bf16BackwardArguments& g) {
  if (kda::tensor_core_backward_unsupported(g).empty()) return kda::tensor_core_backward(g);
  if (!copies_unsupported(g).empty()) return backward_in_fp32(g, {g.Dk, g.g, g.dg});
  on_copies("kda --backward: copies", g, false, [](const Bf16BackwardArguments& p) { kda::tensor_core_backward(p); });
}

std::string dispatch_backward_unsupported(const Bf16BackwardArguments& g) {
  if (kda::tensor_core_backward_unsupported(g).empty() || copies_unsupported(g).empty()) return "";
  return backward_in_fp32_unsupported(g);
}

std::string dispatch_backward_note(const Bf16BackwardArguments& g) {
  const std::string reason = kda::tensor_core_backward_unsupported(g), of_copies = copies_unsupported(g);
  if (reason.empty()) return "tensor_core";
  return of_copies.empty() ? "tensor_core on copies: " + reason : "in fp32: " + of_copies;
}

std::int64_t dispatch_backward_memory(const Bf16BackwardArguments& g) {
  if (kda::tensor_core_backward_unsupported(g).empty()) return kda::tensor_core_backward_memory(g);
  if (!copies_unsupported(g).empty()) return backward_in_fp32_memory(g);
  return kda::tensor_core_backward_memory(sizes_of_copies(g, false)) + memory_of_copies(g);
}

}  // namespace tutorial::kda
