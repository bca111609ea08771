/// @file
/// Stage 8, `dispatch`: what a user calls. No new kernel, a choice between two.
///
/// Idea: stage 5 has a block for each tile of a head and walks; stage 6 has one for each chunk and computes more. The
/// former wins where heads fill the GPU or the walk is short, the latter where there are few heads and many chunks.
/// Mends: stage 5 leaves multiprocessors idle when there are few heads; stage 6 computes the scores of a chunk in each
/// tile of columns and passes the states through memory. Same: their kernels, equations, shapes and bytes.
/// The choice is made by estimating both times. A step of a walk has a latency, and work for each block that shares the
/// multiprocessor; the chunks of stage 6 share out the multiprocessors evenly, and there are four launches in front.
/// Limit and needs: those of the kernel that it picks. What stage 5 does not take, Dk > 256, goes to stage 6.
/// Weakness: the constants follow from counting instructions, and fp32 does without tensor cores.

#include <cuda_runtime.h>

#include "03_gla/gla.hpp"
#include "common/device/device.hpp"

namespace tutorial::gla {
namespace {

// Microseconds at Dk = 128.
constexpr double kStepLatency = 0.1, kStepWork = 0.08;  // of a block of stage 5, for a position
constexpr double kChunkWork = 18;                       // of a block of stage 6, for 64 positions and 64 columns
constexpr double kLaunches = 10;                        // of stage 6

double divided_up(double count, int by) {
  return double((std::int64_t(count) - 1) / by + 1);
}

bool walk_is_faster(const FloatArguments& a) {
  const int multiprocessors = multiprocessor_count();
  const double heads = double(a.B) * a.H, width = a.Dk / 128.0;
  const double walks = divided_up(heads * divided_up(a.Dv, 32), multiprocessors);  // a multiprocessor
  const double chunks = divided_up(heads * divided_up(a.L, 64) * divided_up(a.Dv, 64), multiprocessors);
  return a.L * (kStepLatency + walks * kStepWork * width) < kLaunches + chunks * kChunkWork * width;
}

bool picks_recurrent(const FloatArguments& a) {
  if (!recurrent_gpu_limits(a).empty()) return false;
  return !chunk_gpu_limits(a).empty() || walk_is_faster(a);
}

}  // namespace

void dispatch(const FloatArguments& a) {
  picks_recurrent(a) ? recurrent_gpu(a) : chunk_gpu(a);
}

std::string dispatch_limits(const FloatArguments& a) {
  return picks_recurrent(a) ? "" : chunk_gpu_limits(a);
}

std::string dispatch_note(const FloatArguments& a) {
  return picks_recurrent(a) ? "recurrent_gpu" : "chunk_gpu";
}

std::int64_t dispatch_memory(const FloatArguments& a) {
  return picks_recurrent(a) ? recurrent_gpu_memory(a) : chunk_gpu_memory(a);
}

}  // namespace tutorial::gla
