/// @file
/// `dispatch`: what a user calls. It adds no product of its own. It chooses between `warpgroups` and `tensor_core`, and
/// supports widths and rows that neither does.
///
/// Idea: as in `dispatch` of `delta_rule`, copies with more columns, which are zeros, make every problem with widths up
/// to 256 one that `tensor_core` supports, and up to 128, on Hopper, `warpgroups`. Gates need no copy. Where the tiles
/// of neither stage fit into a block's shared memory, the gradients are computed in fp32, as in `dispatch` of
/// `delta_rule`.
/// Improves on: neither stage supports widths that are no multiple of 16 or rows that are not aligned, nor normalised
/// keys where a block does not have all of Dk. `warpgroups` needs Hopper and widths up to 128.
/// Unchanged: the products.
/// Equation: those of `tensor_core`; where the copy of k is normalised, dk as in `dispatch` of `delta_rule`.
/// Shapes: those of the two stages; copies [B, H, L, 16 ceil(D / 16)] bf16, and of states fp32.
/// Thread mapping: in the copies block (4 rows, h, b), a warp per row.
/// Bytes: where copies are needed, each of q, k, v, do and the gradients is read and written once more.
/// Bound by: as the chosen stage.
/// Requires: Dk up to 256.
/// Fallback: delta_rule_backward/dispatch/in_fp32.cu. A problem with a larger Dk is for `chunkwise`.
/// Weakness: keys that the copy normalises are rounded to bf16 afterwards. The two stages normalise in fp32.

#include "05_deltanet_wy/delta_rule_backward/dispatch/copies.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/in_fp32.hpp"
#include "05_deltanet_wy/gated_delta_rule_backward.hpp"

namespace tutorial::gated_delta_rule {
namespace {

using namespace delta_rule;  // copies

/// A stage that dispatch chooses.
struct Choice {
  const char* name;
  void (*run)(const Bf16BackwardArguments&);
  std::int64_t (*memory)(const Bf16BackwardArguments&);
};

/// The fastest stage for a problem that `tensor_core` supports.
Choice fastest(const Bf16BackwardArguments& g) {
  if (warpgroups_backward_unsupported(g).empty())
    return {"warpgroups", warpgroups_backward, warpgroups_backward_memory};
  return {"tensor_core", tensor_core_backward, tensor_core_backward_memory};
}

/// Whether no stage on copies could normalise the keys itself.
bool normalizes(const Bf16BackwardArguments& g) {
  return g.normalize_keys && !tensor_core_backward_unsupported(sizes_of_copies(g, false)).empty();
}

/// Why no stage supports copies of the tensors; empty if one does.
std::string copies_unsupported(const Bf16BackwardArguments& g) {
  return tensor_core_backward_unsupported(sizes_of_copies(g, normalizes(g)));
}

}  // namespace

void dispatch_backward(const Bf16BackwardArguments& g) {
  if (tensor_core_backward_unsupported(g).empty()) return fastest(g).run(g);
  if (!copies_unsupported(g).empty()) return backward_in_fp32(g, {1, g.g, g.dg});
  on_copies("gated_delta_rule --backward: copies", g, normalizes(g),
            [](const Bf16BackwardArguments& copies) { fastest(copies).run(copies); });
}

std::string dispatch_backward_unsupported(const Bf16BackwardArguments& g) {
  if (tensor_core_backward_unsupported(g).empty() || copies_unsupported(g).empty()) return "";
  return backward_in_fp32_unsupported(g);
}

std::string dispatch_backward_note(const Bf16BackwardArguments& g) {
  const std::string reason = tensor_core_backward_unsupported(g), of_copies = copies_unsupported(g);
  if (reason.empty()) return fastest(g).name;
  if (!of_copies.empty()) return "in fp32: " + of_copies;
  return fastest(sizes_of_copies(g, normalizes(g))).name + (" on copies: " + reason);
}

std::int64_t dispatch_backward_memory(const Bf16BackwardArguments& g) {
  // g may come without strides, from which no stage could be chosen; the copies have some.
  const Bf16BackwardArguments copies = sizes_of_copies(g, normalizes(g));
  const bool is_direct = tensor_core_backward_unsupported(g).empty();
  if (!is_direct && !copies_unsupported(g).empty()) return backward_in_fp32_memory(g);
  return fastest(copies).memory(copies) + (is_direct ? 0 : memory_of_copies(g));
}

}  // namespace tutorial::gated_delta_rule
