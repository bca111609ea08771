/// @file
/// Stage 6, `dispatch`: what a user calls. No new kernel for the operator, a choice.
///
/// Mends: stage 5 takes as many segments as fill the GPU once, whatever they cost; for short sequences stage 3 is
/// faster; and the tensor-core stages take not every width. Same: their kernels, shapes and bytes.
/// How many segments and how wide a tile: chapter 02's estimate, with the times of a chunk with scalar gates; one
/// segment is stage 4. Stage 3, where it is estimated to be faster: it takes the time of its launches, of its walk or
/// the bytes of its first kernel, whichever is longer, and of the bytes of its second; and where Dk > 128 and the tiles
/// of the stages 4 and 5 do not fit into this GPU's shared memory. Widths that are no multiple of 16 or too large, and
/// rows that are not aligned, go to chapter 03's dispatch, which takes any: a kernel gives each of the Dk elements a
/// gate of its own.
/// Limit and needs: those of the kernels that it picks.
/// Weakness: estimates. Where two choices are close it may pick the slower one; the times were measured at
/// Dk = Dv = 128, between the widths they are guessed.

#include <cuda_runtime.h>

#include <algorithm>

#include "03_gla/gla.hpp"
#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/spread.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::simple_gla {
namespace {

// Measured on an H200.
constexpr linear_attention::WalkTimes kTimes{.narrow = {.walk = {2.5, 4.1}, .states = {0.9, 1.3}},
                                             .wide = {.walk = {3.5, 6.0}, .states = {1.3, 2.4}}};
constexpr double kTwoLaunches = 5, kStatesOfChunk = 0.9;  // microseconds
constexpr double kBytesPerMicrosecond = 3.7e6;

/// The estimated time of stage 3 in microseconds. About half of its bytes are moved by either kernel; those of initial
/// and final state, which the estimates of the other stages leave out, too, are not among them.
double two_kernels_time(HalfArguments a) {
  a.initial_state.data = nullptr;
  a.final_state.data = nullptr;
  const double half = double(two_kernels_moved(a)) / 2 / kBytesPerMicrosecond;
  return kTwoLaunches + std::max(kStatesOfChunk * double((a.L - 1) / 64 + 1), half) + half;
}

/// What to run where stage 3 takes the problem.
struct Choice {
  bool two_kernels;
  Spread spread;  ///< of stage 5, else

  explicit Choice(const HalfArguments& a) : spread(linear_attention::fastest_spread(without_gates(a), kTimes)) {
    two_kernels = !fused_limits(a).empty() ||
                  two_kernels_time(a) < linear_attention::estimated_time(without_gates(a), kTimes, spread);
  }
};

/// Blocks of 8 rows, a warp each.
constexpr unsigned kRows = 8;

/// A gate for each element. Grid ceil(B H L / kRows). @param gates [B, H, L, Dk]
__global__ void widen_gates_kernel(HalfArguments a, float* gates) {
  const std::int64_t row = std::int64_t(blockIdx.x) * kRows + threadIdx.y, head = row / a.L;
  if (head >= std::int64_t(a.B) * a.H) return;
  const float gate = load_global(a.g.row(head / a.H, head % a.H, row % a.L));
  for (int d = int(threadIdx.x); d < a.Dk; d += 32) store_global(gates + row * a.Dk + d, gate);
}

std::int64_t rows(const HalfArguments& a) {
  return std::int64_t(a.B) * a.H * a.L;
}

/// The same problem for gla. @param gates [B, H, L, Dk], or null where only sizes are of interest
gla::HalfArguments as_gla(const HalfArguments& a, const float* gates) {
  return {
      a.B, a.H,          a.L, a.Dk, a.Dv, a.C, a.scale, a.q, a.k, a.v, packed(gates, a.H, a.L, a.Dk), a.initial_state,
      a.o, a.final_state};
}

}  // namespace

void dispatch(const HalfArguments& a) {
  if (two_kernels_limits(a).empty()) {
    const Choice choice(a);
    return choice.two_kernels ? two_kernels(a) : sequence_parallel(a, choice.spread);
  }
  float* gates = workspace<float>("simple_gla: gates", std::size_t(rows(a) * a.Dk));
  launch(widen_gates_kernel, {unsigned((rows(a) - 1) / kRows + 1), dim3(32, kRows)}, a, gates);
  gla::dispatch(as_gla(a, gates));
}

std::string dispatch_limits(const HalfArguments& a) {
  if (two_kernels_limits(a).empty()) return "";
  if (rows(a) > std::int64_t(INT32_MAX) * kRows) return "B H L > 2^34 positions: the grid";
  return gla::dispatch_limits(as_gla(a, nullptr));
}

std::string dispatch_note(const HalfArguments& a) {
  if (const std::string limits = two_kernels_limits(a); !limits.empty()) {
    return "gla's dispatch, " + gla::dispatch_note(as_gla(a, nullptr));
  }
  const Choice choice(a);
  if (choice.two_kernels) return "two_kernels";
  const Spread& spread = choice.spread;
  const std::string tile = std::to_string(spread.columns) + " columns a block";
  if (spread.segments == 1) return "fused, " + tile;
  return "sequence_parallel, " + std::to_string(spread.segments) + " segments, " + tile;
}

std::int64_t dispatch_memory(const HalfArguments& a) {
  if (two_kernels_limits(a).empty()) {
    const Choice choice(a);
    return choice.two_kernels ? two_kernels_memory(a) : sequence_parallel_memory(a, choice.spread);
  }
  return std::int64_t(sizeof(float)) * rows(a) * a.Dk + gla::dispatch_memory(as_gla(a, nullptr));
}

std::int64_t dispatch_moved(const HalfArguments& a) {
  if (!two_kernels_limits(a).empty()) return -1;
  const Choice choice(a);
  return choice.two_kernels ? two_kernels_moved(a) : sequence_parallel_moved(a, choice.spread);
}

}  // namespace tutorial::simple_gla
