/// @file
/// `scan`: the recurrence again.
///
/// Idea: if kernel_j = r^j, the sum satisfies y_t = r y_{t-1} + u_t, and y_{t-1} is all that y_t needs of the past. So
/// this is the operator `scan` with the same gate at every step.
/// Grows out of: 1_fft.cpp; port to the GPU: the sum becomes a recurrence, which the operator scan computes
/// Improves on: `fft` takes O(L log L) operations, and its first output waits for the last input.
/// Unchanged: the result.
/// Equation: g_t = log(kernel_1) and y = scan(u, g)
/// Shapes: u, y [B, L, D]; kernel [L]; gates [L], shared by all batch entries through a stride of 0, in workspace; fp32
/// in device memory.
/// Thread mapping: one thread per gate; then scan's dispatch.
/// Resources: 4 L bytes of workspace, and that of `scan`.
/// Work: 2 L D operations, and one exponential per step and four channels.
/// Bytes: u and y once.
/// Bound by: memory.
/// Requires: kernel_0 = 1, 0 < kernel_1 = r <= 1 and kernel_j = r^j, up to rounding. Sums of N such kernels would be N
/// scans (README.md, exercises).
/// Weakness: for other kernels, one number per channel is not enough as a state.
/// Sources: chapter 06's operator `scan`.

#include <cuda_runtime.h>

#include <cmath>

#include "06_scan/convolution.hpp"
#include "06_scan/scan.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::convolution {
namespace {

constexpr unsigned kThreads = 256;

/// log(r) for every step. A kernel of one step has no r. Grid ceil(L / kThreads).
__global__ void gates_kernel(const float* kernel, float* gates, int L) {
  const std::int64_t t = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (t < L) store_global(&gates[t], L > 1 ? logf(load_global(&kernel[1])) : 0.0f);
}

/// The problem as one of `scan`. @param gates [L]
scan::Arguments as_scan(const Arguments& a, const float* gates) {
  scan::Arguments s{};
  s.B = a.B, s.H = 1, s.L = a.L, s.D = a.D, s.Dg = 1;
  s.x = a.u;
  s.log_decay = {gates, 0, 0, 1};
  s.y = a.y;
  return s;
}

}  // namespace

void by_scan(const Arguments& a) {
  auto* gates = workspace<float>("convolution: gates", std::size_t(a.L));
  launch(gates_kernel, {(unsigned(a.L) - 1) / kThreads + 1, kThreads}, a.kernel, gates, a.L);
  scan::dispatch(as_scan(a, gates));
}

}  // namespace tutorial::convolution
