#include <cuda_runtime.h>

#include <climits>

#include "06_scan/affine.hpp"
#include "06_scan/scan.hpp"
#include "06_scan/scan/backwards.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::scan {
namespace {

constexpr int kThreads = 256;

/// exp(g_t) dx_t of channel d, what reaches y_{t-1}. At the first step it is the initial state's gradient.
__device__ float reaches_before(const BackwardArguments& a, int b, int h, int t, int d) {
  const float g = load_global(&a.log_decay.row(b, h, t)[a.Dg == 1 ? 0 : d]);
  const float gradient = decay(g) * load_global(&a.dx.row(b, h, t)[d]);
  if (t == 0 && a.dinitial_state.data) store_global(&a.dinitial_state.row(b, h, 0)[d], gradient);
  return gradient;
}

/// y_{t-1} of channel d.
__device__ float y_before(const BackwardArguments& a, View<const float> y, int b, int h, int t, int d) {
  if (t > 0) return load_global(&y.row(b, h, t - 1)[d]);
  return a.initial_state.data ? load_global(&a.initial_state.row(b, h, 0)[d]) : 0.0f;
}

// A head has `head_blocks` blocks of its own: positions are told apart by divisions of blocks, which are of 32 bits. Three
// of 64 bits a thread would take longer than the memory.

/// A thread a gate, where every channel has its own: thread n of a head's (t, d).
__global__ void __launch_bounds__(kThreads)
    channel_gates_kernel(BackwardArguments a, View<const float> y, int head_blocks) {
  const int head = int(blockIdx.x) / head_blocks, h = head % a.H, b = head / a.H;
  const std::int64_t n = std::int64_t(int(blockIdx.x) % head_blocks) * kThreads + threadIdx.x;
  const int t = int(a.D == 1 ? n : n / a.D), d = int(n - std::int64_t(t) * a.D);
  if (t >= a.L) return;
  const float gradient = reaches_before(a, b, h, t, d) * y_before(a, y, b, h, t, d);
  store_global(&a.dlog_decay.row(b, h, t)[d], gradient);
}

/// A warp a gate, which all channels share: warp t of a head's.
__global__ void __launch_bounds__(kThreads)
    step_gates_kernel(BackwardArguments a, View<const float> y, int head_blocks) {
  const int head = int(blockIdx.x) / head_blocks, h = head % a.H, b = head / a.H;
  const int t = int(blockIdx.x) % head_blocks * (kThreads / 32) + int(threadIdx.x) / 32;
  if (t >= a.L) return;
  float sum = 0;
  for (int d = int(lane_index()); d < a.D; d += 32) {
    sum += reaches_before(a, b, h, t, d) * y_before(a, y, b, h, t, d);
  }
  sum = warp_sum(sum);
  if (lane_index() == 0) store_global(&a.dlog_decay.row(b, h, t)[0], sum);
}

std::int64_t head_blocks(const BackwardArguments& a) {
  return (std::int64_t(a.L) * (a.Dg == a.D ? a.D : 32) - 1) / kThreads + 1;
}

std::int64_t blocks(const BackwardArguments& a) {
  return std::int64_t(a.B) * a.H * head_blocks(a);
}

}  // namespace

View<float> recomputed_y(const BackwardArguments& a) {
  const auto bytes = std::size_t(recomputed_y_memory(a));
  return packed(workspace<float>("scan: y again", bytes / sizeof(float)), a.H, a.L, a.D);
}

std::int64_t recomputed_y_memory(const BackwardArguments& a) {
  return std::int64_t(sizeof(float)) * a.B * a.H * a.L * a.D;
}

void gate_gradient(const BackwardArguments& a, View<const float> y) {
  launch(a.Dg == a.D ? channel_gates_kernel : step_gates_kernel, {unsigned(blocks(a)), kThreads}, a, y,
         int(head_blocks(a)));
}

std::string gate_gradient_limits(const BackwardArguments& a) {
  return blocks(a) > INT_MAX ? "B H L > 2^31 - 1 blocks of 256 threads: the grid" : "";
}

}  // namespace tutorial::scan
