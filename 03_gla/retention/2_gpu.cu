/// @file
/// The stages 2 and 3, `gpu` and `gpu_bf16`: the same table in device memory, for gla's dispatch.
///
/// Idea: as in stage 1. Mends: a thread a head. Same: the table; a kernel of H blocks writes it before each call, so
/// that a call can be captured in a graph and no host memory has to live until it has run.
///
///   g_td = log(1 - 2^(-5-h))        a table [H, Dk], seen as [B, H, L, Dk] with strides 0, Dk, 0, 1
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; S_0 and final_state [B, H, Dk, Dv]; in device memory, fp32, and for
/// `gpu_bf16` q, k, v and o in bf16.
/// Who does what: block h of the first kernel writes row h; then gla's. Work, limit and needs: gla's; bytes: q, k, v
/// and o once, the table from the second-level cache.
/// Weakness: stage 1's.
/// Source: arXiv 2307.08621, equation 8; arXiv 2312.06635, section 4.2.

#include <cuda_runtime.h>

#include "03_gla/retention/gates.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::retention {
namespace {

/// Grid H.
__global__ void gates_kernel(float* gates, int Dk) {
  const int h = int(blockIdx.x);
  const auto log_gate = float(log1p(-exp2(-5.0 - h)));
  for (int d = int(threadIdx.x); d < Dk; d += int(blockDim.x)) store_global(&gates[std::int64_t(h) * Dk + d], log_gate);
}

/// The arguments with a table that the kernel has been started for.
template <class T>
gla::Arguments<T> with_gates(const Arguments<T>& a) {
  float* gates = workspace<float>("retention: gates", std::size_t(a.H) * std::size_t(a.Dk));
  launch(gates_kernel, {unsigned(a.H), 128}, gates, a.Dk);
  return gated(a, gates);
}

std::int64_t table_bytes(int H, int Dk) {
  return std::int64_t(sizeof(float)) * H * Dk;
}

}  // namespace

void gpu(const FloatArguments& a) {
  gla::dispatch(with_gates(a));
}

void gpu(const HalfArguments& a) {
  gla::dispatch(with_gates(a));
}

std::string gpu_limits(const FloatArguments& a) {
  return gla::dispatch_limits(gated(a, nullptr));
}

std::string gpu_limits(const HalfArguments& a) {
  return gla::dispatch_limits(gated(a, nullptr));
}

std::string gpu_note(const FloatArguments& a) {
  return gla::dispatch_note(gated(a, nullptr));
}

std::string gpu_note(const HalfArguments& a) {
  return gla::dispatch_note(gated(a, nullptr));
}

std::int64_t gpu_memory(const FloatArguments& a) {
  return gla::dispatch_memory(gated(a, nullptr)) + table_bytes(a.H, a.Dk);
}

std::int64_t gpu_memory(const HalfArguments& a) {
  return gla::dispatch_memory(gated(a, nullptr)) + table_bytes(a.H, a.Dk);
}

}  // namespace tutorial::retention
