#include "06_scan/scan/gate_gradient.hpp"

#include <cuda_runtime.h>

#include "06_scan/affine.hpp"
#include "06_scan/scan.hpp"
#include "06_scan/scan_backward.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::scan {
namespace {

constexpr int kThreads = kGateThreads;

/// dg_t = exp(g_t) dx_t y_{t-1} of one channel; exp(g_1) dx_1 is the initial state's gradient as well.
__device__ __forceinline__ float gradient_of(const BackwardArguments& a, int b, int h, int t, int d, float g, float dx,
                                             float y_before) {
  const float reaches_before = decay(g) * dx;
  if (t == 0) {
    y_before = a.initial_state.data ? load_global(&a.initial_state.row(b, h, 0)[d]) : 0.0f;
    if (a.dinitial_state.data) store_global(&a.dinitial_state.row(b, h, 0)[d], reaches_before);
  }
  return reaches_before * y_before;
}

// Each head has `head_blocks` blocks of its own, so that a thread knows its head by dividing numbers of 32 bits. (If D
// > 1, finding its place in the head still takes a division of 64 bits.)

constexpr int kEach = kGatesOfThread;

/// For gates that every channel has for itself. A thread has four of them, so that twelve loads are in flight: gates n,
/// n + 256, ... of the (t, d) of a head.
__global__ void __launch_bounds__(kThreads)
    channel_gates_kernel(BackwardArguments a, View<const float> y, int head_blocks) {
  const int head = int(blockIdx.x) / head_blocks, h = head % a.H, b = head / a.H;
  const std::int64_t first = std::int64_t(int(blockIdx.x) % head_blocks) * (kEach * kThreads) + threadIdx.x;
  const float *const g_of = a.log_decay.row(b, h, 0), *const dx_of = a.dx.row(b, h, 0), *const y_of = y.row(b, h, 0);
  int t[kEach], d[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const std::int64_t n = first + i * kThreads;
    t[i] = int(a.D == 1 ? n : n / a.D);
    d[i] = int(n - std::int64_t(t[i]) * a.D);
  }
  float g[kEach], dx[kEach], y_before[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const bool is_there = t[i] < a.L;
    g[i] = is_there ? load_global(g_of + t[i] * a.log_decay.stride_l + d[i]) : 0.0f;
    dx[i] = is_there ? load_global(dx_of + t[i] * a.dx.stride_l + d[i]) : 0.0f;
    y_before[i] = is_there && t[i] > 0 ? load_global(y_of + (t[i] - 1) * y.stride_l + d[i]) : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (t[i] >= a.L) return;
    store_global(&a.dlog_decay.row(b, h, t[i])[d[i]], gradient_of(a, b, h, t[i], d[i], g[i], dx[i], y_before[i]));
  }
}

/// For gates that all channels share. One warp per gate: warp t of a head has gate t.
__global__ void __launch_bounds__(kThreads)
    step_gates_kernel(BackwardArguments a, View<const float> y, int head_blocks) {
  const int head = int(blockIdx.x) / head_blocks, h = head % a.H, b = head / a.H;
  const int t = int(blockIdx.x) % head_blocks * (kThreads / 32) + int(threadIdx.x) / 32;
  if (t >= a.L) return;
  const float g = load_global(a.log_decay.row(b, h, t));
  float sum = 0;
  for (int d = int(lane_index()); d < a.D; d += 32) {
    const float y_before = t > 0 ? load_global(&y.row(b, h, t - 1)[d]) : 0.0f;
    sum += gradient_of(a, b, h, t, d, g, load_global(&a.dx.row(b, h, t)[d]), y_before);
  }
  sum = warp_sum(sum);
  if (lane_index() == 0) store_global(&a.dlog_decay.row(b, h, t)[0], sum);
}

}  // namespace

View<float> recomputed_y(const BackwardArguments& a) {
  const std::size_t count = std::size_t(a.B) * a.H * a.L * a.D;
  return packed(workspace<float>("scan: y again", count), a.H, a.L, a.D);
}

void gate_gradient(const BackwardArguments& a, View<const float> y) {
  const std::int64_t head_blocks = gate_blocks_of_head(a);
  launch(a.Dg == a.D ? channel_gates_kernel : step_gates_kernel,
         {unsigned(std::int64_t(a.B) * a.H * head_blocks), kThreads}, a, y, int(head_blocks));
}

}  // namespace tutorial::scan
