/// @file
/// Stage 6, `dispatch`: what a user calls. No new kernel, a choice that turned out not to be one.
///
/// Idea: the chapter ends with two ways to compute gla: stage 5, which needs no workspace and reads v once, q, k and g
/// once for each tile of columns of Dv; and chapter 03's two kernels, which write q and k with their decays to memory
/// and read them again, on as many segments of the sequence as the GPU wants. Both were measured, stage 5 on segments,
/// too (segments.hpp), and the two kernels are faster at every size (README.md, "Why one kernel is not the fastest").
/// So this is chapter 03's dispatch.
/// Mends: stage 5 has as many blocks as heads and tiles of Dv, and its instructions are its limit. Same: the operator.
///
/// Shapes, who does what, resources, work, bytes, limit and needs: those of the kernels that it picks, in 03_gla/gla.
/// Weakness: where memory is short, stage 5 would do without the workspace. Nobody asks for that here.

#include "04_fused_chunk/fused_gla.hpp"

namespace tutorial::fused_gla {

void dispatch(const HalfArguments& a) {
  gla::dispatch(a);
}

std::string dispatch_limits(const HalfArguments& a) {
  return gla::dispatch_limits(a);
}

std::string dispatch_note(const HalfArguments& a) {
  return "chapter 03: " + gla::dispatch_note(a);
}

std::int64_t dispatch_memory(const HalfArguments& a) {
  return gla::dispatch_memory(a);
}

std::int64_t dispatch_moved(const HalfArguments& a) {
  return gla::dispatch_moved(a);
}

}  // namespace tutorial::fused_gla
