#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "common/device/buffer.hpp"
#include "common/device/device.hpp"
#include "common/device/error.hpp"
#include "common/device/launch.cuh"
#include "common/device/mma.cuh"
#include "common/device/stream.hpp"
#include "common/roofline.hpp"

namespace tutorial {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 8;  // 2048 threads, all that a multiprocessor holds at once

// A thread copies one float4.
__global__ void copy_kernel(const float4* from, float4* to, long long count) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) to[i] = from[i];
}

constexpr int kChains = 4;  // independent results a thread: with 16 warps a scheduler that hides every latency
constexpr int kSteps = 4096;

__global__ void __launch_bounds__(kThreads) fma_kernel(float* result, float factor, float term) {
  float sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = static_cast<float>(threadIdx.x + i);
#pragma unroll 8
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) sums[i] = fmaf(sums[i], factor, term);
  }
  float total = 0;
  for (int i = 0; i < kChains; ++i) total += sums[i];
  if (total == -1) *result = total;  // never, but the compiler does not know
}

__global__ void __launch_bounds__(kThreads) exponential_kernel(float* result) {
  float values[kChains];
  for (int i = 0; i < kChains; ++i) values[i] = static_cast<float>(threadIdx.x + i) * 1e-3f;
#pragma unroll 8
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(values[i]));
  }
  float total = 0;
  for (int i = 0; i < kChains; ++i) total += values[i];
  if (total == -1) *result = total;
}

constexpr double kMmaFlops = 2.0 * 16 * 8 * 16;

__global__ void __launch_bounds__(kThreads) mma_kernel(float* result) {
  float d[kChains][4] = {};
  const std::uint32_t a[4] = {threadIdx.x, threadIdx.x + 1, threadIdx.x + 2, threadIdx.x + 3};
  const std::uint32_t b[2] = {threadIdx.x, threadIdx.x + 1};
#pragma unroll 8
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) mma_m16n8k16(d[i], a, b);
  }
  float total = 0;
  for (int i = 0; i < kChains; ++i) total += d[i][0] + d[i][1] + d[i][2] + d[i][3];
  if (total == -1) *result = total;
}

class Stopwatch {
 public:
  Stopwatch() {
    check(cudaEventCreate(&start_));
    check(cudaEventCreate(&stop_));
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    cudaEventDestroy(stop_);
    cudaEventDestroy(start_);
  }

  // The shortest of several runs, in seconds; the first ones also wake the GPU up.
  template <class F>
  double best_seconds(F work) {
    float best = 1e30f;
    for (int run = 0; run < 8; ++run) {
      check(cudaEventRecord(start_, current_stream()));
      work();
      check(cudaEventRecord(stop_, current_stream()));
      check(cudaEventSynchronize(stop_));
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, start_, stop_));
      best = std::min(best, milliseconds);
    }
    return 1e-3 * best;
  }

 private:
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};

double copy_bytes_s(Stopwatch& stopwatch) {
  std::size_t available = 0, total = 0;
  check(cudaMemGetInfo(&available, &total));
  const std::size_t bytes = std::min<std::size_t>(512 << 20, available / 4) / sizeof(float4) * sizeof(float4);
  const std::size_t count = bytes / sizeof(float4);
  DeviceBuffer<float4> from(count), to(count);
  from.fill_bytes(0);
  const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  const double kernel = stopwatch.best_seconds([&] {
    launch(copy_kernel, {blocks, kThreads}, from.data(), to.data(), static_cast<long long>(count));
  });
  const double driver = stopwatch.best_seconds(
      [&] { check(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, current_stream())); });
  return 2.0 * static_cast<double>(bytes) / std::min(kernel, driver);
}

}  // namespace

Roofline measure_gpu_roofline(const WantedRates& wanted) {
  Stopwatch stopwatch;
  Roofline roofline{.copy_bytes_s = copy_bytes_s(stopwatch)};
  DeviceBuffer<float> result(1);
  const auto blocks = static_cast<unsigned>(kBlocksPerMultiprocessor * multiprocessor_count());
  const double steps = static_cast<double>(blocks) * kThreads * kChains * kSteps;  // of all threads together
  if (wanted.fma) {
    roofline.fma_flops_s = 2 * steps / stopwatch.best_seconds([&] {
      launch(fma_kernel, {blocks, kThreads}, result.data(), 0.999f, 0.001f);
    });
  }
  if (wanted.exponentials) {
    roofline.exponentials_s = steps / stopwatch.best_seconds([&] {
      launch(exponential_kernel, {blocks, kThreads}, result.data());
    });
  }
  if (wanted.tensor) {
    roofline.tensor_flops_s = kMmaFlops / 32 * steps / stopwatch.best_seconds([&] {
      launch(mma_kernel, {blocks, kThreads}, result.data());
    });
  }
  return roofline;
}

}  // namespace tutorial
