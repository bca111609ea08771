/// @file
/// `chapter_03`: the operator as chapter 03 left it.
///
/// Idea: start from the fastest kernels so far, on the same inputs. Every stage of this chapter is checked against
/// them.
/// Grows out of: nothing
/// Unchanged: everything; it is chapter 03's `dispatch` on bf16.
/// Equation:
///
///   S_t = diag(exp(g_t)) S_{t-1} + k_t^T v_t,    o_t = scale q_t S_t
///
/// Shapes, Thread mapping, Resources, Work, Bytes, Bound by, Requires: as the kernel that it picks, in 03_gla/gla.
/// Weakness: its kernels are fused already, so they cannot show what fusing buys. `five_steps` goes back to kernels
/// that are not, those of the first release of flash-linear-attention.

#include "04_fused_chunk/fused_gla.hpp"

namespace tutorial::fused_gla {

void chapter_03(const Bf16Arguments& a) {
  gla::dispatch(a);
}

std::string chapter_03_unsupported(const Bf16Arguments& a) {
  return gla::dispatch_unsupported(a);
}

std::string chapter_03_note(const Bf16Arguments& a) {
  return gla::dispatch_note(a);
}

std::int64_t chapter_03_memory(const Bf16Arguments& a) {
  return gla::dispatch_memory(a);
}

}  // namespace tutorial::fused_gla
