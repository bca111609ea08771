/// @file
/// `dispatch` of --backward: what a user calls. It supports what `one_anchor` does not.
///
/// Idea: tensor cores where widths and alignment allow them: `one_anchor` on Hopper, or `warpgroup_states` there if
/// bulk copies cannot take q, k or a gradient; `materialized` elsewhere, and `subchunk_walks` for widths above 128;
/// otherwise kernels of one warp per row of a state, which compute in fp32 (dispatch/in_fp32.cu). For q, k, v and do in
/// fp32 it is always the latter.
/// Improves on: `one_anchor` needs Hopper, widths that are multiples of 16 and at most 128, and aligned rows.
/// Unchanged: the kernels, shapes and bytes of what it chooses.
/// Fallback: `closed_form` in fp32 on the GPU, with one warp per row or column of a state.
/// Bound by: as what it chooses.
/// Requires: Dk and Dv up to 512.
/// Weakness: for widths above 128 there is one block per head and 64 columns, however long the sequence is; and the
/// kernels in fp32 wait at each position.

#include "03_gla/gla_backward.hpp"
#include "03_gla/gla_backward/dispatch/in_fp32.hpp"

namespace tutorial::gla {

void dispatch_backward(const Bf16BackwardArguments& a) {
  if (warpgroup_gradients_backward_unsupported(a).empty()) return one_anchor_backward(a);
  if (warpgroup_states_backward_unsupported(a).empty()) return warpgroup_states_backward(a);
  if (materialized_backward_unsupported(a).empty()) return materialized_backward(a);
  subchunk_walks_backward_unsupported(a).empty() ? subchunk_walks_backward(a) : backward_in_fp32(a);
}

void dispatch_backward(const FloatBackwardArguments& a) {
  backward_in_fp32(a);
}

std::string dispatch_backward_unsupported(const Bf16BackwardArguments& a) {
  return subchunk_walks_backward_unsupported(a).empty() ? "" : backward_in_fp32_unsupported(a);
}

std::string dispatch_backward_unsupported(const FloatBackwardArguments& a) {
  return backward_in_fp32_unsupported(a);
}

std::string dispatch_backward_note(const Bf16BackwardArguments& a) {
  if (warpgroup_gradients_backward_unsupported(a).empty()) return "one_anchor";
  if (warpgroup_states_backward_unsupported(a).empty()) return "warpgroup_states";
  if (materialized_backward_unsupported(a).empty()) return "materialized";
  const std::string reason = subchunk_walks_backward_unsupported(a);
  return reason.empty() ? "subchunk_walks" : "in fp32: " + reason;
}

std::int64_t dispatch_backward_memory(const Bf16BackwardArguments& a) {
  if (materialized_backward_unsupported(a).empty()) return materialized_backward_memory(a);
  return subchunk_walks_backward_unsupported(a).empty() ? subchunk_walks_backward_memory(a) : 0;
}

}  // namespace tutorial::gla
