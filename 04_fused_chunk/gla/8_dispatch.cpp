/// @file
/// `dispatch`: what a user calls. It is `warp_specialized` or chapter 03's dispatch.
///
/// Idea: the chapter ends with two ways to compute gla. `warp_specialized` has one launch, no workspace, and the fewest
/// bytes, but each block computes for longer. Chapter 03's kernels write q and k with their decays to memory and read
/// them again, on as many segments of the sequence as suit the GPU. `warp_specialized` is faster for short sequences,
/// where launches take most of the time, and for many heads, where bytes do. Between the two, chapter 03's kernels are
/// faster (README.md, "One kernel, on warpgroups"). `dispatch` estimates both times from measured ones and takes the
/// shorter.
/// Grows out of: 1_chapter_03.cpp
/// Improves on: `warp_specialized` has only one block per head and tile of Dv, and is bound by its instructions.
/// Unchanged: the operator.
/// Shapes, Thread mapping, Resources, Work, Bytes, Bound by, Requires: as the kernels that it picks; 03_gla/gla has
/// those of chapter 03.
/// Weakness: the times in the estimate were measured on an H200 at Dk = Dv = 128.

#include "04_fused_chunk/fused_gla.hpp"
#include "04_fused_chunk/gla/one_kernel.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"

namespace tutorial::fused_gla {
namespace {

constexpr double kLaunch = 4, kNarrowChunk = 3, kWideChunk = 4.7;  // microseconds

/// The estimated time of `warp_specialized`. Each of its blocks has a multiprocessor to itself.
double warp_specialized_time(const Bf16Arguments& a) {
  const int columns = one_kernel_columns(a);
  const double blocks = double(a.B) * a.H * ceil_div(a.Dv, columns);
  const double rounds = ceil_div(std::int64_t(blocks), multiprocessor_count());
  return kLaunch + rounds * ceil_div(a.L, 64) * (columns == 64 ? kNarrowChunk : kWideChunk) * (0.3 + 0.7 * a.Dk / 128);
}

bool takes_one_kernel(const Bf16Arguments& a) {
  return warp_specialized_unsupported(a).empty() && warp_specialized_time(a) < gla::dispatch_time(a);
}

}  // namespace

void dispatch(const Bf16Arguments& a) {
  takes_one_kernel(a) ? warp_specialized(a) : gla::dispatch(a);
}

std::string dispatch_unsupported(const Bf16Arguments& a) {
  return gla::dispatch_unsupported(a);
}

std::string dispatch_note(const Bf16Arguments& a) {
  if (!takes_one_kernel(a)) return "chapter 03: " + gla::dispatch_note(a);
  return "warp_specialized, " + std::to_string(one_kernel_columns(a)) + " columns per block";
}

std::int64_t dispatch_memory(const Bf16Arguments& a) {
  return takes_one_kernel(a) ? 0 : gla::dispatch_memory(a);
}

std::int64_t dispatch_bytes_moved(const Bf16Arguments& a) {
  return takes_one_kernel(a) ? warp_specialized_bytes_moved(a) : gla::dispatch_bytes_moved(a);
}

}  // namespace tutorial::fused_gla
