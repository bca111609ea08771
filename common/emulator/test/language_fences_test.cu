/// @file
/// Fences between blocks: the block that comes last adds up what the others have left in device memory.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"

namespace tutorial {
namespace {

__global__ void sum_of_blocks(const int* in, int* partial, unsigned* done, int* sum) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    int total = 0;
    for (unsigned i = 0; i < blockDim.x; ++i) total += in[blockIdx.x * blockDim.x + i];
    partial[blockIdx.x] = total;
    __threadfence();
    last = atomicAdd(done, 1) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    int total = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) total += partial[i];
    *sum = total;
  }
}

TEST(Fences, OrderWhatOneBlockLeavesForAnother) {
  std::vector<int> values(20 * 32);
  std::iota(values.begin(), values.end(), 1);
  const DeviceBuffer<int> in(values);
  DeviceBuffer<int> partial(20), sum(1);
  DeviceBuffer<unsigned> done(std::vector<unsigned>{0});
  launch(sum_of_blocks, {20, 32}, in.data(), partial.data(), done.data(), sum.data());
  EXPECT_EQ(sum.download()[0], 640 * 641 / 2);
}

/// A warp leaves a number in shared memory for another that waits for it.
__global__ void pass_on(int* out) {
  __shared__ int number;
  __shared__ int ready;
  if (threadIdx.x == 0) ready = 0;
  __syncthreads();
  if (threadIdx.x == 32) {
    number = 42;
    __threadfence_block();
    atomicExch(&ready, 1);
  }
  if (threadIdx.x == 0) {
    while (atomicAdd(&ready, 0) == 0) __nanosleep(10);
    __threadfence_block();
    *out = number;
  }
}

TEST(Fences, OrderWhatOneWarpLeavesForAnother) {
  DeviceBuffer<int> out(1);
  launch(pass_on, {1, 64}, out.data());
  EXPECT_EQ(out.download()[0], 42);
}

}  // namespace
}  // namespace tutorial
