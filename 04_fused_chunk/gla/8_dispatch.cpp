/// @file
/// `dispatch`: what a user calls. It is chapter 03's dispatch.
///
/// Idea: the chapter ends with two ways to compute gla. `one_kernel` needs no workspace, reads v once, and q, k and g
/// once for each tile of Dv. Chapter 03's two kernels write q and k with their decays to memory and read them again, on
/// as many segments of the sequence as the GPU wants. The two kernels were measured to be faster at every size, also
/// against a version of `one_kernel` with segments (README.md, "Why one kernel is not the fastest").
/// Grows out of: 1_chapter_03.cpp
/// Improves on: `one_kernel` has as many blocks as heads and tiles of Dv, and is bound by its instructions.
/// Unchanged: the operator.
/// Shapes, Thread mapping, Resources, Work, Bytes, Bound by, Requires: as the kernels that it picks, in 03_gla/gla.
/// Weakness: it takes a workspace, which `one_kernel` does without.

#include "04_fused_chunk/fused_gla.hpp"

namespace tutorial::fused_gla {

void dispatch(const Bf16Arguments& a) {
  gla::dispatch(a);
}

std::string dispatch_unsupported(const Bf16Arguments& a) {
  return gla::dispatch_unsupported(a);
}

std::string dispatch_note(const Bf16Arguments& a) {
  return "chapter 03: " + gla::dispatch_note(a);
}

std::int64_t dispatch_memory(const Bf16Arguments& a) {
  return gla::dispatch_memory(a);
}

}  // namespace tutorial::fused_gla
