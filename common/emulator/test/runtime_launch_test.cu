// Launches: indices, many blocks over several OS threads, what is refused, what is counted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <emulator/counters.hpp>
#include <emulator/shared.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "runtime_support.hpp"

namespace emulator::test {
namespace {

using testing::Each;
using testing::HasSubstr;

__global__ void nothing() {}

__global__ void number_threads(int* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned index = block * blockDim.x * blockDim.y * blockDim.z + thread;
  __syncthreads();  // the indices are right again after other threads have run
  out[index] += static_cast<int>(threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * blockIdx.x +
                                 10000 * blockIdx.y + 100000 * blockIdx.z);
}

TEST(Launch, EveryThreadKnowsItsIndices) {
  std::vector<int> out(2 * 3 * 4 * 5 * 2 * 3, 0);
  ASSERT_EQ(run(dim3(2, 3, 4), dim3(5, 2, 3), 0, [&] { number_threads(out.data()); }), cudaSuccess);
  std::size_t i = 0;
  for (int bz = 0; bz < 4; ++bz)
    for (int by = 0; by < 3; ++by)
      for (int bx = 0; bx < 2; ++bx)
        for (int z = 0; z < 3; ++z)
          for (int y = 0; y < 2; ++y)
            for (int x = 0; x < 5; ++x) {
              EXPECT_EQ(out[i++], x + 10 * y + 100 * z + 1000 * bx + 10000 * by + 100000 * bz);
            }
}

__global__ void add_one(int* out, float* sum) {
  out[global_thread()] += 1;
  atomicAdd(sum, 1.0f);
}

TEST(Launch, EveryBlockRunsOnceOnAnyNumberOfOsThreads) {
  for (const char* threads : {"1", "2", "7"}) {
    const Environment environment("EMULATOR_THREADS", threads);
    for (const unsigned blocks : {1u, 3u, 101u}) {
      std::vector<int> out(blocks * 16, 0);
      float sum = 0;
      ASSERT_EQ(run(blocks, 16, 0, [&] { add_one(out.data(), &sum); }), cudaSuccess);
      EXPECT_THAT(out, Each(1));
      EXPECT_EQ(sum, static_cast<float>(out.size()));
    }
  }
}

// Each block waits until the other one runs, too.
__global__ void meet(std::atomic<int>* arrived) {
  ++*arrived;
  while (*arrived < 2) std::this_thread::yield();
}

TEST(Launch, BlocksRunAtTheSameTime) {
#ifdef EMULATOR_ASAN
  GTEST_SKIP() << "with AddressSanitizer one OS thread runs all blocks";
#endif
  const Environment environment("EMULATOR_THREADS", "2");
  std::atomic<int> arrived = 0;
  EXPECT_EQ(run(2, 1, 0, [&] { meet(&arrived); }), cudaSuccess);
}

TEST(Launch, SeveralHostThreadsLaunch) {
  std::vector<std::vector<int>> out(4, std::vector<int>(320, 0));
  std::vector<float> sums(4, 0);
  {
    std::vector<std::jthread> hosts;
    for (std::size_t i = 0; i < out.size(); ++i) {
      hosts.emplace_back([&, i] {
        for (int j = 0; j < 5; ++j) (void)run(10, 32, 0, [&] { add_one(out[i].data(), &sums[i]); });
      });
    }
  }
  EXPECT_THAT(out, Each(Each(5)));
}

TEST(Launch, AForkedProcessLaunchesToo) {
#ifdef EMULATOR_TSAN
  GTEST_SKIP() << "ThreadSanitizer allows no threads after a fork";
#endif
  ASSERT_EQ(run(2, 2, 0, [] { nothing(); }), cudaSuccess);
  const pid_t child = fork();
  if (child == 0) _exit(run(2, 2, 0, [] { nothing(); }) == cudaSuccess ? 7 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(Launch, RefusesWhatAGpuRefuses) {
  const dim3 bad_blocks[] = {{1025}, {1, 1025}, {1, 1, 65}, {32, 33}, {0}, {1, 0}, {1, 1, 0}, {65536, 65536}};
  for (const dim3 block : bad_blocks) {
    EXPECT_EQ(run(1, block, 0, [] { nothing(); }), cudaErrorInvalidValue) << block.x << "," << block.y;
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
  const dim3 bad_grids[] = {{0}, {1, 0}, {1, 1, 0}, {0x80000000u}, {1, 65536}, {1, 1, 65536}};
  for (const dim3 grid : bad_grids) {
    EXPECT_EQ(run(grid, 1, 0, [] { nothing(); }), cudaErrorInvalidValue) << grid.x << "," << grid.y;
  }
  for (const dim3 block : {dim3(1024), dim3(1, 1024), dim3(16, 1, 64)}) {
    EXPECT_EQ(run(1, block, 0, [] { nothing(); }), cudaSuccess) << block.x << "," << block.y;
  }
  (void)cudaGetLastError();
}

TEST(Launch, RefusesTooMuchSharedMemory) {
  const auto with = [](std::size_t bytes, const void* kernel) {
    return launch(
        1, 1, bytes, nullptr, std::source_location::current(), [] { nothing(); }, kernel);
  };
  const auto* kernel = reinterpret_cast<const void*>(&nothing);
  EXPECT_EQ(with(48 * 1024, kernel), cudaSuccess);
  EXPECT_EQ(with(48 * 1024 + 1, kernel), cudaErrorInvalidValue);
  EXPECT_EQ(with(227 * 1024, nullptr), cudaSuccess);
  EXPECT_EQ(with(227 * 1024 + 1, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024 + 1),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 * 1024), cudaSuccess);
  EXPECT_EQ(with(100 * 1024, kernel), cudaSuccess);
  EXPECT_EQ(with(100 * 1024 + 1, kernel), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 48 * 1024), cudaSuccess);
  (void)cudaGetLastError();
}

TEST(Launch, ABadSettingIsOneClearError) {
  const std::pair<const char*, const char*> settings[] = {
      {"EMULATOR_THREADS", "0"},
      {"EMULATOR_THREADS", "two"},
      {"EMULATOR_THREADS", "4294967296"},
      {"EMULATOR_SCHEDULE", "backward"},
      {"EMULATOR_SCHEDULE", "random:x"},
      {"EMULATOR_SCHEDULE", ""},
      {"EMULATOR_ASYNC", "soon"},
      {"EMULATOR_ASYNC", "random:"},
      {"EMULATOR_ASYNC", "random:1x"},
      {"EMULATOR_SKIP_BARRIER", "file.cu"},
      {"EMULATOR_SKIP_BARRIER", "f.cu:1x"},
  };
  for (const auto& [name, value] : settings) {
#ifdef EMULATOR_ASAN
    if (std::string(name) == "EMULATOR_THREADS") continue;  // not read
#endif
    const Environment environment(name, value);
    EXPECT_EQ(run(1, 1, 0, [] { nothing(); }), cudaErrorInvalidValue) << name << "=" << value;
    EXPECT_THAT(last_report(), HasSubstr("'" + std::string(value) + "'"));
    EXPECT_EQ(std::ranges::count(last_report(), '\n'), 1);
  }
  (void)cudaGetLastError();
}

__global__ void count_things(float* out) {
  __syncthreads();
  __syncthreads();
  __syncwarp();
  const float sum = __shfl_xor_sync(0xFFFFFFFFu, 1.0f, 1) + __shfl_xor_sync(0xFFFFFFFFu, 1.0f, 2);
  count_global_read(16);
  count_global_write(4);
  atomicAdd(out, sum);
}

TEST(Counters, CountAllBlocksOfAllLaunches) {
  float out = 0;
  reset_counters();
  ASSERT_EQ(run(5, 64, 0, [&] { count_things(&out); }), cudaSuccess);
  ASSERT_EQ(run(1, 32, 0, [&] { count_things(&out); }), cudaSuccess);
  EXPECT_NE(run(0, 32, 0, [&] { count_things(&out); }), cudaSuccess);  // never ran
  const Counters count = counters();
  EXPECT_EQ(count.launches, 2u);
  EXPECT_EQ(count.blocks, 6u);
  EXPECT_EQ(count.threads, 352u);
  EXPECT_EQ(count.barriers, 12u);
  EXPECT_EQ(count.warp_barriers, 11u);
  EXPECT_EQ(count.warp_collectives, 22u);
  EXPECT_EQ(count.atomics, 352u);
  EXPECT_EQ(count.global_bytes_read, 352u * 16);
  EXPECT_EQ(count.global_bytes_written, 352u * 4);
  reset_counters();
  EXPECT_EQ(counters().threads, 0u);
}

}  // namespace
}  // namespace emulator::test
