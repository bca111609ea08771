/// @file
/// `dispatch`: what a user calls. It adds no product of its own. It chooses between `warpgroups`, `segments` where few
/// heads would leave multiprocessors idle, and `tensor_core`, and supports widths and rows that none of them does.
///
/// Idea: as in `dispatch` of `delta_rule`, copies with more columns, which are zeros, make every problem with widths up
/// to 256 one that `tensor_core` supports, and up to 128, on Hopper, the other two. Gates need no copy. Where no tiles
/// fit into a block's shared memory, the gradients are computed in fp32, as in `dispatch` of
/// `delta_rule`.
/// Improves on: none of them supports widths that are no multiple of 16 or rows that are not aligned, nor normalised
/// keys where a block does not have all of Dk. Two of them need Hopper and widths up to 128.
/// Unchanged: the products.
/// Equation: those of `tensor_core`; where the copy of k is normalised, dk as in `dispatch` of `delta_rule`.
/// Shapes: those of the kernels; copies [B, H, L, 16 ceil(D / 16)] bf16, and of states fp32.
/// Thread mapping: in the copies block (4 rows, h, b), a warp per row.
/// Bytes: where copies are needed, each of q, k, v, do and the gradients is read and written once more.
/// Bound by: as the chosen kernel.
/// Requires: Dk up to 1024.
/// Fallback: delta_rule_backward/dispatch/in_fp32.cu.
/// Weakness: keys that the copy normalises are rounded to bf16 afterwards. The kernels normalise in fp32.

#include "05_deltanet_wy/delta_rule_backward/dispatch/choice.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/requirements.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/segments.hpp"
#include "05_deltanet_wy/gated_delta_rule_backward.hpp"

namespace tutorial::gated_delta_rule {
namespace {

// Up to so many positions the start of the kernels on warpgroups takes longer than what they save: on an H200 tensor_core
// takes 0.99 of their time for 32 positions, 1.04 for 128, and 1.31 for 512.
constexpr int kFewPositions = 64;
constexpr double kChunkClocks = 2500;  // of the walks, with 8 heads of 32768 positions on an H200

/// The fastest kernel for a problem that `tensor_core` supports.
delta_rule::Kernel<Bf16BackwardArguments> fastest(const Bf16BackwardArguments& g) {
  if (g.L <= kFewPositions || !warpgroups_backward_unsupported(g).empty())
    return {"tensor_core", tensor_core_backward, tensor_core_backward_memory};
  if (delta_rule::segments_are_faster(g, kChunkClocks, true))
    return {"segments", segments_backward, segments_backward_memory};
  return {"warpgroups", warpgroups_backward, warpgroups_backward_memory};
}

delta_rule::Choice choice_for(const Bf16BackwardArguments& g) {
  // Keys are normalised on the way to the copies only if no kernel on copies could do it itself.
  const bool normalizes =
      g.normalize_keys && !tensor_core_backward_unsupported(delta_rule::sizes_of_copies(g, false)).empty();
  return delta_rule::choose(g, {1, g.g, g.dg}, "gated_delta_rule --backward: copies", normalizes,
                            tensor_core_backward_unsupported, fastest);
}

}  // namespace

void dispatch_backward(const Bf16BackwardArguments& g) {
  choice_for(g).run();
}

std::string dispatch_backward_unsupported(const Bf16BackwardArguments& g) {
  return choice_for(g).unsupported;
}

std::string dispatch_backward_note(const Bf16BackwardArguments& g) {
  return choice_for(g).note;
}

std::int64_t dispatch_backward_memory(const Bf16BackwardArguments& g) {
  return choice_for(g).memory();
}

}  // namespace tutorial::gated_delta_rule
