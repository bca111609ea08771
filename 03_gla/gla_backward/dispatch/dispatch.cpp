/// @file
/// `dispatch` of --backward: what a user calls. It supports what `one_anchor` does not.
///
/// Idea: tensor cores where widths and alignment allow them: `one_anchor` on Hopper, `materialized` elsewhere, and
/// `subchunk_walks` for widths above 128; otherwise kernels of one warp per row of a state, which compute in fp32
/// (dispatch/in_fp32.cu). For q, k, v and do in fp32 it is always the latter.
/// Improves on: `one_anchor` needs Hopper, widths that are multiples of 16 and at most 128, and aligned rows.
/// Unchanged: the kernels, shapes and bytes of what it chooses.
/// Fallback: `closed_form` in fp32 on the GPU, with one warp per row or column of a state.
/// Bound by: as what it chooses.
/// Requires: Dk and Dv up to 512.
/// Weakness: for widths above 128 there is one block per head and 64 columns, however long the sequence is; and the
/// kernels in fp32 wait at each position.

#include "03_gla/gla_backward.hpp"
#include "03_gla/gla_backward/dispatch/in_fp32.hpp"
#include "03_gla/gla_backward/requirements.hpp"

namespace tutorial::gla {
namespace {

/// What is called for a problem, and what there is to say of it.
struct Choice {
  void (*run)(const Bf16BackwardArguments&);
  std::string note;
  std::int64_t memory = 0;
  std::string unsupported = {};  ///< why nothing can be called, as a sentence; empty if it can
};

Choice choose(const Bf16BackwardArguments& a) {
  if (one_anchor_backward_unsupported(a).empty()) return {one_anchor_backward, "one_anchor", between_memory(a)};
  if (materialized_backward_unsupported(a).empty()) return {materialized_backward, "materialized", between_memory(a)};
  const std::string reason = subchunk_walks_backward_unsupported(a);
  if (reason.empty()) return {subchunk_walks_backward, "subchunk_walks", subchunk_walks_backward_memory(a)};
  return {backward_in_fp32, "in fp32: " + reason, 0, backward_in_fp32_unsupported(a)};
}

}  // namespace

void dispatch_backward(const Bf16BackwardArguments& a) {
  choose(a).run(a);
}

void dispatch_backward(const FloatBackwardArguments& a) {
  backward_in_fp32(a);
}

std::string dispatch_backward_unsupported(const Bf16BackwardArguments& a) {
  return choose(a).unsupported;
}

std::string dispatch_backward_unsupported(const FloatBackwardArguments& a) {
  return backward_in_fp32_unsupported(a);
}

std::string dispatch_backward_note(const Bf16BackwardArguments& a) {
  return choose(a).note;
}

std::int64_t dispatch_backward_memory(const Bf16BackwardArguments& a) {
  return choose(a).memory;
}

}  // namespace tutorial::gla
