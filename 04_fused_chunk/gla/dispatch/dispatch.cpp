/// @file
/// `dispatch`: what a user calls. It is `segments` or chapter 03's dispatch.
///
/// Idea: `segments` needs Hopper, Dk of at most 128 and tensors that bulk copies support. Where it can run, `dispatch`
/// estimates its time, with the best number of segments and width of a tile (segment_plan.cpp), and that of chapter 03,
/// and takes the shorter.
/// Improves on: `segments` does not run on other GPUs and does not support every width. And its first kernel reads all of
/// a segment where its last chunks would do (bounded_segments.cu).
/// Unchanged: the operator.
/// Shapes, Thread mapping, Resources, Work, Bytes, Bound by, Requires: as the kernels that it picks; 03_gla/gla has
/// those of chapter 03.
/// Weakness: the times in the estimates were measured on an H200 at Dk = Dv = 128.

#include "04_fused_chunk/fused_gla.hpp"
#include "04_fused_chunk/gla/dispatch/chapter_03.hpp"
#include "04_fused_chunk/gla/launch_plan.hpp"

namespace tutorial::fused_gla {
namespace {

/// A kernel, and what is to be said of it.
struct Choice {
  void (*run)(const Bf16Arguments&);
  std::string name;  ///< with a colon
  std::string (*note)(const Bf16Arguments&);
  std::int64_t (*memory)(const Bf16Arguments&);
  std::int64_t (*bytes_moved)(const Bf16Arguments&);
};

void bounded_segments(const Bf16Arguments& a) {
  walk_bounded_segments(a, segments_plan(a));
}

/// With several segments they depend on the gates.
std::int64_t bounded_segments_bytes(const Bf16Arguments& a) {
  return segments_plan(a).segments == 1 ? segments_bytes_moved(a) : -1;
}

Choice choose(const Bf16Arguments& a) {
  const bool is_one_kernel =
      score_levels_unsupported(a).empty() && segments_time(a, segments_plan(a)) < gla::dispatch_time(a);
  if (is_one_kernel) return {bounded_segments, "segments: ", segments_note, segments_memory, bounded_segments_bytes};
  return {chapter_03, "chapter 03: ", chapter_03_note, chapter_03_memory, chapter_03_bytes_moved};
}

}  // namespace

void dispatch(const Bf16Arguments& a) {
  choose(a).run(a);
}

std::string dispatch_unsupported(const Bf16Arguments& a) {
  return gla::dispatch_unsupported(a);
}

std::string dispatch_note(const Bf16Arguments& a) {
  const Choice choice = choose(a);
  return choice.name + choice.note(a);
}

std::int64_t dispatch_memory(const Bf16Arguments& a) {
  return choose(a).memory(a);
}

std::int64_t dispatch_bytes_moved(const Bf16Arguments& a) {
  return choose(a).bytes_moved(a);
}

}  // namespace tutorial::fused_gla
