/// @file
/// `dispatch`: what a user calls. It adds no product of its own. It supports widths and rows that `tensor_core` does
/// not.
///
/// Idea: as in `dispatch` of `delta_rule`, copies with more columns make every problem up to Dk = Dv = 128 one that
/// `tensor_core` supports. The columns are zeros; for g that means gates of 1. On Hopper `warpgroups` computes it, and
/// `segments` where few heads would leave multiprocessors idle. Wider problems, and all where the tiles do not fit into a
/// block's shared memory, are computed in fp32, position after position.
/// Improves on: `tensor_core` does not support widths that are no multiple of 16 or rows that are not aligned.
/// Unchanged: the products.
/// Equation: those of `tensor_core`.
/// Shapes: those of `tensor_core`; copies [B, H, L, 16 ceil(D / 16)] bf16, and of g, dg and states fp32.
/// Thread mapping: in the copies block (4 rows, h, b), a warp per row.
/// Bytes: where copies are needed, each of q, k, v, g, do and the gradients is read and written once more.
/// Bound by: as the chosen kernel.
/// Requires: Dk up to 1024.
/// Fallback: delta_rule_backward/dispatch/in_fp32.cu.
/// Weakness: one narrow column more may cost as much as 15. The choice does not look at the gates: where no chunk has an
/// anchor, `warpgroups` is no faster than `tensor_core`.

#include "05_deltanet_wy/delta_rule_backward/dispatch/choice.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/requirements.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/segments.hpp"
#include "05_deltanet_wy/kda_backward.hpp"

namespace tutorial::kda {
namespace {

constexpr double kChunkClocks = 2900;  // of the walks, with 8 heads of 16384 positions on an H200

/// The fastest kernel for a problem that `tensor_core` supports.
delta_rule::Kernel<Bf16BackwardArguments> fastest(const Bf16BackwardArguments& g) {
  if (!warpgroups_backward_unsupported(g).empty())
    return {"tensor_core", tensor_core_backward, tensor_core_backward_memory};
  if (delta_rule::segments_are_faster(g, kChunkClocks, true))
    return {"segments", segments_backward, segments_backward_memory};
  return {"warpgroups", warpgroups_backward, warpgroups_backward_memory};
}

delta_rule::Choice choice_for(const Bf16BackwardArguments& g) {
  return delta_rule::choose(g, {g.Dk, g.g, g.dg}, "kda --backward: copies", false, tensor_core_backward_unsupported,
                            fastest);
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

}  // namespace tutorial::kda
