// What the emulator itself costs: emulator_benchmark prints the processor time of its building blocks. Kernels that do
// nothing else, one OS thread.

#include <cuda_runtime.h>
#include <emulator/launch.hpp>
#include <emulator/warp.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>

namespace {

constexpr int kRepeats = 2000;

__global__ void switches() {
  for (int i = 0; i < kRepeats; ++i) __nanosleep(0);
}

__global__ void barriers() {
  for (int i = 0; i < kRepeats; ++i) __syncthreads();
}

__global__ void shuffles(float* out) {
  float x = 1.0f;
  for (int i = 0; i < kRepeats; ++i) x = __shfl_xor_sync(~0u, x, 1);
  out[threadIdx.x] = x;
}

__global__ void nothing() {}

double processor_seconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// The least of five processor times that a launch took on average, in nanoseconds.
double nanoseconds(unsigned blocks, unsigned threads, const std::function<void()>& body, int launches = 1) {
  double least = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double start = processor_seconds();
    for (int j = 0; j < launches; ++j) {
      if (emulator::launch(blocks, threads, 0, nullptr, std::source_location::current(), body) != cudaSuccess)
        std::abort();
    }
    least = std::min(least, processor_seconds() - start);
  }
  return 1e9 * least / launches;
}

}  // namespace

int main() {
  setenv("EMULATOR_THREADS", "1", 1);
  static float out[1024];
  std::printf("%-8s %28s %28s %28s\n", "threads", "switch to another thread", "thread and __syncthreads",
              "thread and __shfl_xor_sync");
  for (const unsigned threads : {32u, 64u, 256u, 1024u}) {
    const double calls = static_cast<double>(kRepeats) * threads;
    std::printf("%-8u %25.1f ns %25.1f ns %25.1f ns\n", threads, nanoseconds(1, threads, switches) / calls,
                nanoseconds(1, threads, barriers) / calls, nanoseconds(1, threads, [] { shuffles(out); }) / calls);
  }
  std::printf("launch of one thread %.1f us, a block of 64 threads more %.1f us\n",
              nanoseconds(1, 1, nothing, 1000) / 1e3, nanoseconds(1000, 64, nothing) / 1e6);
}
