/// @file
/// simple_gla as gla: as_gla.hpp.

#include "04_fused_chunk/simple_gla/dispatch/as_gla.hpp"

#include <cuda_runtime.h>

#include "03_gla/gla.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::simple_gla {
namespace {

constexpr unsigned kRows = 8;  // of a block, one warp each

/// One gate for each row of the state. Grid ceil(B H L / kRows). @param gates [B, H, L, Dk]
__global__ void repeat_gates_kernel(View<const float> g, int B, int H, int L, int Dk, float* gates) {
  const std::int64_t row = std::int64_t(blockIdx.x) * kRows + threadIdx.y, head = row / L;
  if (head >= std::int64_t(B) * H) return;
  const float gate = load_global(g.row(head / H, head % H, row % L));
  for (int d = int(threadIdx.x); d < Dk; d += 32) store_global(gates + row * Dk + d, gate);
}

std::int64_t rows(const Bf16Arguments& a) {
  return std::int64_t(a.B) * a.H * a.L;
}

/// @param gates [B, H, L, Dk], or null if only sizes matter
gla::Bf16Arguments as_gla(const Bf16Arguments& a, const float* gates) {
  return {
      a.B, a.H,          a.L, a.Dk, a.Dv, a.C, a.scale, a.q, a.k, a.v, packed(gates, a.H, a.L, a.Dk), a.initial_state,
      a.o, a.final_state};
}

}  // namespace

void repeat_gates(const View<const float>& g, int B, int H, int L, int Dk, float* gates) {
  const std::int64_t positions = std::int64_t(B) * H * L;
  launch(repeat_gates_kernel, {unsigned((positions - 1) / kRows + 1), dim3(32, kRows)}, g, B, H, L, Dk, gates);
}

void dispatch_as_gla(const Bf16Arguments& a) {
  float* gates = workspace<float>("simple_gla: gates", std::size_t(rows(a) * a.Dk));
  repeat_gates(a.g, a.B, a.H, a.L, a.Dk, gates);
  gla::dispatch(as_gla(a, gates));
}

std::string as_gla_unsupported(const Bf16Arguments& a) {
  if (rows(a) > std::int64_t(INT32_MAX) * kRows) return "B H L > 2^34 positions: the grid";
  return gla::dispatch_unsupported(as_gla(a, nullptr));
}

std::string as_gla_note(const Bf16Arguments& a) {
  return gla::dispatch_note(as_gla(a, nullptr));
}

std::int64_t as_gla_memory(const Bf16Arguments& a) {
  return std::int64_t(sizeof(float)) * rows(a) * a.Dk + gla::dispatch_memory(as_gla(a, nullptr));
}

}  // namespace tutorial::simple_gla
