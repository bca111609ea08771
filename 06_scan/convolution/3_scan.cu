/// @file
/// `scan`: the recurrence again.
///
/// Idea: if kernel_j = r^j, the sum satisfies y_t = r y_{t-1} + u_t, and y_{t-1} is all that y_t needs of the past. So
/// this is the operator `scan` with the same gate at every step.
/// Grows out of: 1_direct.cpp; port to the GPU: the sum becomes a recurrence, which the operator scan computes
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
#include <vector>

#include "06_scan/convolution.hpp"
#include "06_scan/scan.hpp"
#include "common/device/error.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/stream.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::convolution {
namespace {

constexpr unsigned kThreads = 256;
constexpr double kRounding = 1e-7;  // of kernel_j <= 1 in fp32, and a little more

/// log(r) for every step. A kernel of one step has no r. Grid ceil(L / kThreads).
__global__ void gates_kernel(const float* kernel, float* gates, int L) {
  const std::int64_t t = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (t < L) store_global(&gates[t], L > 1 ? logf(load_global(&kernel[1])) : 0.0f);
}

/// The problem as one of `scan`. @param gates [L], or null if only sizes are needed
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

std::string by_scan_unsupported(const Arguments& a) {
  if (a.kernel) {
    std::vector<float> kernel(std::size_t(a.L), 0.0f);
    check(cudaMemcpyAsync(kernel.data(), a.kernel, kernel.size() * sizeof(float), cudaMemcpyDeviceToHost,
                          current_stream()));
    check(cudaStreamSynchronize(current_stream()));
    const double r = a.L > 1 ? double(kernel[1]) : 1.0;
    const std::string why = ": a scan has one number per channel for the past, enough for kernel_j = r^j, 0 < r <= 1";
    if (!(r > 0 && r <= 1)) return "kernel_1 is not in (0, 1]" + why;
    double power = 1;
    for (int j = 0; j < a.L; ++j, power *= r) {
      if (std::abs(double(kernel[std::size_t(j)]) - power) <= kRounding) continue;
      return "kernel_" + std::to_string(j) + " is not " + (j == 0 ? "1" : "kernel_1^" + std::to_string(j)) + why;
    }
  }
  return scan::dispatch_unsupported(as_scan(a, nullptr));
}

std::int64_t by_scan_memory(const Arguments& a) {
  return std::int64_t(sizeof(float)) * a.L + scan::dispatch_memory(as_scan(a, nullptr));
}

std::string by_scan_note(const Arguments& a) {
  return scan::dispatch_note(as_scan(a, nullptr));
}

}  // namespace tutorial::convolution
