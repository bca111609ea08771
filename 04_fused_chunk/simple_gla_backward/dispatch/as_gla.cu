/// @file
/// The gradients of simple_gla as those of gla: as_gla.hpp.
///
///     g_t repeated for each row d:  g_td = g_t,      dg_t = the sum of dg_td over d

#include "04_fused_chunk/simple_gla_backward/dispatch/as_gla.hpp"

#include <cuda_runtime.h>

#include "03_gla/gla_backward.hpp"
#include "04_fused_chunk/simple_gla/dispatch/as_gla.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::simple_gla {
namespace {

constexpr unsigned kRows = 8;  // of a block, one warp each

/// dg of each position. Grid ceil(B H L / kRows). @param gradients [B, H, L, Dk]: those of the repeated gates
__global__ void sum_gradients_kernel(View<float> dg, int B, int H, int L, int Dk, const float* gradients) {
  const std::int64_t row = std::int64_t(blockIdx.x) * kRows + threadIdx.y, head = row / L;
  if (head >= std::int64_t(B) * H) return;
  float sum = 0;
  for (int d = int(threadIdx.x); d < Dk; d += 32) sum += load_global(gradients + row * Dk + d);
  sum = warp_sum(sum);
  if (threadIdx.x == 0) store_global(dg.row(head / H, head % H, row % L), sum);
}

std::int64_t positions(const Bf16BackwardArguments& b) {
  return std::int64_t(b.B) * b.H * b.L;
}

/// @param gates,gradients [B, H, L, Dk], or null if only sizes matter
gla::Bf16BackwardArguments as_gla(const Bf16BackwardArguments& b, const float* gates, float* gradients) {
  return {b.B,
          b.H,
          b.L,
          b.Dk,
          b.Dv,
          b.C,
          b.scale,
          b.q,
          b.k,
          b.v,
          packed(gates, b.H, b.L, b.Dk),
          b.initial_state,
          b.d_o,
          b.dfinal_state,
          b.dq,
          b.dk,
          b.dv,
          packed(gradients, b.H, b.L, b.Dk),
          b.dinitial_state};
}

}  // namespace

void dispatch_as_gla_backward(const Bf16BackwardArguments& b) {
  const std::int64_t count = positions(b) * b.Dk;
  float* gates = workspace<float>("simple_gla --backward: gates", std::size_t(2 * count));
  float* gradients = gates + count;
  repeat_gates(b.g, b.B, b.H, b.L, b.Dk, gates);
  gla::dispatch_backward(as_gla(b, gates, gradients));
  launch(sum_gradients_kernel, {unsigned((positions(b) - 1) / kRows + 1), dim3(32, kRows)}, b.dg, b.B, b.H, b.L, b.Dk,
         gradients);
}

std::string as_gla_backward_unsupported(const Bf16BackwardArguments& b) {
  if (positions(b) > std::int64_t(INT32_MAX) * kRows) return "B H L > 2^34 positions: the grid";
  return gla::dispatch_backward_unsupported(as_gla(b, nullptr, nullptr));
}

std::string as_gla_backward_note(const Bf16BackwardArguments& b) {
  return gla::dispatch_backward_note(as_gla(b, nullptr, nullptr));
}

std::int64_t as_gla_backward_memory(const Bf16BackwardArguments& b) {
  return 2 * std::int64_t(sizeof(float)) * positions(b) * b.Dk +
         gla::dispatch_backward_memory(as_gla(b, nullptr, nullptr));
}

}  // namespace tutorial::simple_gla
