/// @file
/// Stage 1, `chapter_03`: where the chapter before has ended.
///
/// Idea: before anything is rebuilt, the operator as it was left, on the same inputs: every stage of this chapter is
/// checked against it.
/// Mends: nothing. Same: everything, it is chapter 03's `dispatch` on bf16.
///
///   S_t = diag(exp(g_t)) S_{t-1} + k_t^T v_t,    o_t = scale q_t S_t
///
/// Shapes, who does what, resources, work, bytes, limit and needs: those of the kernel that it picks, in 03_gla/gla.
/// Weakness: it is fused already, and says nothing about what fusing buys. Stage 2 goes back to where nothing is: to
/// the first release of flash-linear-attention.

#include "04_fused_chunk/fused_gla.hpp"

namespace tutorial::fused_gla {

void chapter_03(const HalfArguments& a) {
  gla::dispatch(a);
}

std::string chapter_03_limits(const HalfArguments& a) {
  return gla::dispatch_limits(a);
}

std::string chapter_03_note(const HalfArguments& a) {
  return gla::dispatch_note(a);
}

std::int64_t chapter_03_memory(const HalfArguments& a) {
  return gla::dispatch_memory(a);
}

std::int64_t chapter_03_moved(const HalfArguments& a) {
  return gla::dispatch_moved(a);
}

}  // namespace tutorial::fused_gla
