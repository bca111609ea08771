/// @file
/// Asynchronous copies: that they arrive, when they are waited for, and on the emulator not before.

#include "common/device/cp_async.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"

namespace tutorial {
namespace {

/// 0, 1, 2, ...
std::vector<float> numbers(std::size_t count) {
  std::vector<float> result(count);
  std::iota(result.begin(), result.end(), 0.0f);
  return result;
}

constexpr unsigned kThreads = 64;

/// Copies kThreads pieces of kBytes through shared memory; those of index `valid` and above are zeros.
template <int kBytes>
__global__ void copy(const float* in, float* out, unsigned valid) {
  constexpr unsigned kFloats = kBytes / 4;
  __shared__ __align__(16) float buffer[kThreads * kFloats];
  cp_async<kBytes>(&buffer[threadIdx.x * kFloats], &in[threadIdx.x * kFloats], threadIdx.x < valid);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  const unsigned other = kThreads - 1 - threadIdx.x;  // what another thread has copied
  for (unsigned i = 0; i < kFloats; ++i) out[other * kFloats + i] = buffer[other * kFloats + i];
}

template <int kBytes>
void expect_copied(unsigned valid) {
  std::vector<float> expected = numbers(kThreads * kBytes / 4);
  const DeviceBuffer<float> in(expected);
  DeviceBuffer<float> out(expected.size());
  launch(copy<kBytes>, {1, kThreads}, in.data(), out.data(), valid);
  std::fill(expected.begin() + valid * kBytes / 4, expected.end(), 0.0f);
  EXPECT_EQ(out.download(), expected) << kBytes << " bytes, " << valid << " valid";
}

TEST(CpAsync, CopiesEverySizeAndFillsWithZeros) {
  for (const unsigned valid : {kThreads, 0u, 5u}) {
    expect_copied<4>(valid);
    expect_copied<8>(valid);
    expect_copied<16>(valid);
  }
}

/// out[i] = the sum over tiles n of (n + 1) in[n][kThreads - 1 - i], with kPipelineDepth tiles under way at a time.
template <int kPipelineDepth>
__global__ void weighted_sum(const float* in, float* out, int tiles) {
  __shared__ __align__(16) float buffer[kPipelineDepth][kThreads];
  const auto load = [&](int n) {
    if (n < tiles) cp_async<4>(&buffer[n % kPipelineDepth][threadIdx.x], &in[n * kThreads + threadIdx.x]);
    cp_async_commit();  // empty groups at the end keep the count right
  };
  for (int n = 0; n < kPipelineDepth; ++n) load(n);
  float sum = 0;
  for (int n = 0; n < tiles; ++n) {
    cp_async_wait<kPipelineDepth - 1>();
    __syncthreads();
    sum += static_cast<float>(n + 1) * buffer[n % kPipelineDepth][kThreads - 1 - threadIdx.x];
    __syncthreads();
    load(n + kPipelineDepth);
  }
  out[threadIdx.x] = sum;
}

template <int kPipelineDepth>
void expect_pipelined() {
  for (const int tiles : {1, 2, 3, 7, 20}) {
    const DeviceBuffer<float> in(numbers(tiles * kThreads));
    DeviceBuffer<float> out(kThreads);
    launch(weighted_sum<kPipelineDepth>, {1, kThreads}, in.data(), out.data(), tiles);
    const std::vector<float> result = out.download();
    for (unsigned i = 0; i < kThreads; ++i) {
      float expected = 0;
      for (int n = 0; n < tiles; ++n) expected += static_cast<float>(n + 1) * (n * kThreads + kThreads - 1 - i);
      ASSERT_EQ(result[i], expected) << kPipelineDepth << " stages, " << tiles << " tiles, thread " << i;
    }
  }
}

TEST(CpAsync, KeepsSeveralGroupsUnderWay) {
  expect_pipelined<1>();
  expect_pipelined<2>();
  expect_pipelined<3>();
  expect_pipelined<4>();
}

#if TUTORIAL_EMULATOR

/// What one thread finds in its destinations while groups 0 and 1 and then an uncommitted copy are under way.
__global__ void watch(const float* in, float* out) {
  __shared__ float buffer[3];
  const auto look = [&](int when) {
    for (int i = 0; i < 3; ++i) out[when * 3 + i] = buffer[i];
  };
  buffer[0] = buffer[1] = buffer[2] = -1;
  cp_async<4>(&buffer[0], &in[0]);
  cp_async_commit();
  cp_async<4>(&buffer[1], &in[1]);
  cp_async_commit();
  cp_async<4>(&buffer[2], &in[2]);
  look(0);
  cp_async_wait<2>();
  look(1);
  cp_async_wait<1>();
  look(2);
  cp_async_wait<0>();
  look(3);
  cp_async_commit();
  look(4);
  cp_async_wait<0>();
  look(5);
}

TEST(EmulatedCpAsync, LeavesNaNUntilItsGroupIsWaitedFor) {
  const DeviceBuffer<float> in(numbers(3));
  DeviceBuffer<float> out(18);
  launch(watch, {1, 1}, in.data(), out.data());
  const std::vector<float> result = out.download();
  const int arrived[6] = {0, 0, 1, 2, 2, 3};
  for (int when = 0; when < 6; ++when) {
    for (int i = 0; i < 3; ++i) {
      const float found = result[when * 3 + i];
      if (i < arrived[when]) {
        EXPECT_EQ(found, static_cast<float>(i)) << "at " << when;
      } else {
        EXPECT_TRUE(std::isnan(found)) << found << " in " << i << " at " << when;
      }
    }
  }
}

/// Even blocks leave a copy behind that nobody waits for; odd blocks, which run on the same threads, must not get it.
__global__ void leave_behind(const float* in, float* out) {
  __shared__ float buffer[2];
  buffer[0] = 5;
  cp_async<4>(&buffer[blockIdx.x % 2], &in[0]);
  cp_async_commit();
  if (blockIdx.x % 2 == 1) cp_async_wait<0>();
  out[blockIdx.x] = buffer[0];
}

TEST(EmulatedCpAsync, DropsCopiesThatNobodyWaitsFor) {
  const DeviceBuffer<float> in(numbers(1));
  DeviceBuffer<float> out(64);
  launch(leave_behind, {64, 1}, in.data(), out.data());
  const std::vector<float> result = out.download();
  for (unsigned i = 0; i < 64; i += 2) {
    EXPECT_TRUE(std::isnan(result[i])) << result[i];
    EXPECT_EQ(result[i + 1], 5.0f);
  }
}

__global__ void copy_misaligned(const float* in, int shared_offset, int global_offset) {
  __shared__ __align__(16) float buffer[8];
  cp_async<16>(&buffer[shared_offset], &in[global_offset]);
}

TEST(EmulatedCpAsync, ReportsMisalignedAddresses) {
  const DeviceBuffer<float> in(8);
  EXPECT_NO_THROW(launch(copy_misaligned, {1, 1}, in.data(), 4, 4));
  EXPECT_THROW(launch(copy_misaligned, {1, 1}, in.data(), 1, 4), CudaError);
  EXPECT_THROW(launch(copy_misaligned, {1, 1}, in.data(), 4, 2), CudaError);
}

#endif

}  // namespace
}  // namespace tutorial
