/// @file
/// Stage 1, `chapter_03`: where the chapter before has ended.
///
/// Idea: before anything is rebuilt, the operator as it was left, on the same inputs: every stage of this chapter is
/// checked against it.
/// Mends: nothing. Same: everything, it is chapter 03's `dispatch`.
///
///   S_t = diag(exp(g_t)) S_{t-1} + k_t^T v_t,    o_t = scale q_t S_t
///
/// Shapes, who does what, resources, work, bytes, limit and needs: those of the kernel that it picks, in 03_gla/gla.
/// Weakness: q, k, v and o in fp32, without tensor cores.

#include "04_fused_chunk/fused_gla.hpp"

namespace tutorial::fused_gla {

void chapter_03(const FloatArguments& a) {
  gla::dispatch(a);
}

std::string chapter_03_limits(const FloatArguments& a) {
  return gla::dispatch_limits(a);
}

std::string chapter_03_note(const FloatArguments& a) {
  return gla::dispatch_note(a);
}

std::int64_t chapter_03_memory(const FloatArguments& a) {
  return gla::dispatch_memory(a);
}

}  // namespace tutorial::fused_gla
