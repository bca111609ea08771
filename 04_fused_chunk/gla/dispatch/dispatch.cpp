/// @file
/// `dispatch`: what a user calls. It is `segments` or chapter 03's dispatch.
///
/// Idea: `segments` needs Hopper, Dk of at most 128 and tensors that bulk copies support. Where it can run, `dispatch`
/// estimates its time, with the best number of segments and width of a tile (segment_plan.cpp), and that of chapter 03,
/// and takes the shorter.
/// Improves on: `segments` does not run on other GPUs and does not support every width.
/// Unchanged: the operator.
/// Shapes, Thread mapping, Resources, Work, Bytes, Bound by, Requires: as the kernels that it picks; 03_gla/gla has
/// those of chapter 03.
/// Weakness: the times in the estimates were measured on an H200 at Dk = Dv = 128.

#include "04_fused_chunk/fused_gla.hpp"
#include "04_fused_chunk/gla/one_kernel.hpp"

namespace tutorial::fused_gla {
namespace {

bool takes_one_kernel(const Bf16Arguments& a) {
  return warp_specialized_unsupported(a).empty() && segments_time(a, segments_plan(a)) < gla::dispatch_time(a);
}

}  // namespace

void dispatch(const Bf16Arguments& a) {
  takes_one_kernel(a) ? segments(a) : gla::dispatch(a);
}

std::string dispatch_unsupported(const Bf16Arguments& a) {
  return gla::dispatch_unsupported(a);
}

std::string dispatch_note(const Bf16Arguments& a) {
  return takes_one_kernel(a) ? "segments: " + segments_note(a) : "chapter 03: " + gla::dispatch_note(a);
}

std::int64_t dispatch_memory(const Bf16Arguments& a) {
  return takes_one_kernel(a) ? segments_memory(a) : gla::dispatch_memory(a);
}

std::int64_t dispatch_bytes_moved(const Bf16Arguments& a) {
  return takes_one_kernel(a) ? segments_bytes_moved(a) : gla::dispatch_bytes_moved(a);
}

}  // namespace tutorial::fused_gla
