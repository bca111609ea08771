/// @file
/// `sequential_gpu`: one thread per channel runs the loop over time.
///
/// Idea: channels do not depend on each other, so each channel has its own thread.
/// Grows out of: 1_sequential.cpp; port to the GPU: the loops over batch, heads and channels become a grid
/// Improves on: `hillis_steele` and `blelloch` multiply the work to gain a parallelism that a CPU cannot use.
/// Unchanged: the recurrence, step by step. The sum of the gates is in double, because it grows until fp32 has no
/// digits left for another gate.
/// Equation: y_t = exp(g_t) y_{t-1} + x_t
/// Shapes: x, y [B, H, L, D]; g [B, H, L, Dg], Dg = 1 or D; states [B, H, D]; fp32 in device memory.
/// Thread mapping: thread n has channel n % D of head n / D, so neighbouring lanes read neighbouring numbers of a row.
/// The thread issues the loads of 8 steps before it uses the first.
/// Resources: 16 registers for those loads, no shared memory.
/// Work: 2 operations and an exponential per step and channel.
/// Bytes: x and y once; g once, or once per channel if all channels share it, mostly from a cache.
/// Bound by: latency, one trip to memory per 8 steps. With D = 1 also the memory's bandwidth, because of each line that
/// is read only one number is used. With `--backward` the same kernel runs twice (backwards.hpp): forwards for y, then
/// from the end.
/// Weakness: the number of threads is B H D, however long the sequence is. A single sequence with D = 1 has one thread.
/// Sources: Martin and Cundy, arXiv 1709.04057, section 2.2, "serial" variant.

#include <cuda_runtime.h>

#include "06_scan/affine.hpp"
#include "06_scan/scan.hpp"
#include "06_scan/scan/backwards.hpp"
#include "06_scan/scan/gate_gradient.hpp"
#include "06_scan/scan_backward.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"

namespace tutorial::scan {
namespace {

constexpr int kThreads = 64;
constexpr int kSteps = 8;  // whose loads are under way

__global__ void __launch_bounds__(kThreads) sequential_kernel(Arguments a) {
  const std::int64_t n = std::int64_t(blockIdx.x) * kThreads + threadIdx.x, head = n / a.D;
  if (head >= std::int64_t(a.B) * a.H) return;
  const int d = int(n % a.D), h = int(head % a.H), b = int(head / a.H), gate = a.Dg == 1 ? 0 : d;
  float y = a.initial_state.data ? load_global(&a.initial_state.row(b, h, 0)[d]) : 0.0f;
  double sum = 0;
  for (int t0 = 0; t0 < a.L; t0 += kSteps) {
    float x[kSteps], g[kSteps];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int t = t0 + i;
      x[i] = t < a.L ? load_global(&a.x.row(b, h, t)[d]) : 0.0f;
      g[i] = t < a.L && (t > 0 || a.has_first_gate) ? load_global(&a.log_decay.row(b, h, t)[gate]) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      y = expf(g[i]) * y + x[i];  // not decay(): its error would add up over equal gates
      sum += double(g[i]);
      if (t0 + i < a.L) store_global(&a.y.row(b, h, t0 + i)[d], y);
    }
  }
  if (a.final_state.data) store_global(&a.final_state.row(b, h, 0)[d], y);
  if (a.final_log_decay.data && d < a.Dg) store_global(&a.final_log_decay.row(b, h, 0)[d], float(sum));
}

}  // namespace

void sequential_gpu(const Arguments& a) {
  launch(sequential_kernel, {unsigned((std::int64_t(a.B) * a.H * a.D - 1) / kThreads + 1), kThreads}, a);
}

void sequential_gpu_backward(const BackwardArguments& a) {
  const View<float> y = recomputed_y(a);
  sequential_gpu(forwards(a, y));
  sequential_gpu(backwards(a));
  gate_gradient(a, {y.data, y.stride_b, y.stride_h, y.stride_l});
}

}  // namespace tutorial::scan
