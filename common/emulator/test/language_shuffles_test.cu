/// @file
/// The four shuffles, with every width and distance and for every type, against the wording of the CUDA C++ Programming
/// Guide ("Warp Shuffle Functions") and the PTX ISA (shfl.sync).

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"

namespace tutorial {
namespace {

constexpr int kDistances = 64;  // up to twice the warp: they count modulo 32

/// The lane that `lane` reads, for each of the four shuffles.
struct Sources {
  int direct, up, down, flipped;
};

Sources model(int lane, int distance, int width) {
  const int first = lane / width * width, last = first + width - 1;
  const int steps = distance % 32;
  const int up = lane - steps, down = lane + steps, flipped = lane ^ steps;
  return {first + distance % width, up < first ? lane : up, down > last ? lane : down, flipped > last ? lane : flipped};
}

/// What a lane got for each distance. The value of a lane is 100 + its number, or a pair with its negative.
template <class T>
struct Received {
  T direct, up, down, flipped;
};

template <class T>
__device__ T value_of(int lane) {
  return static_cast<T>(static_cast<float>(100 + lane));
}
template <>
__device__ __half2 value_of(int lane) {
  return __floats2half2_rn(100.0f + lane, -100.0f - lane);
}
template <>
__device__ __nv_bfloat162 value_of(int lane) {
  return __floats2bfloat162_rn(100.0f + lane, -100.0f - lane);
}

template <class T>
bool is_value_of(T value, int lane) {
  return static_cast<float>(value) == 100.0f + lane;
}
bool is_value_of(__half2 value, int lane) {
  return __low2float(value) == 100.0f + lane && __high2float(value) == -100.0f - lane;
}
bool is_value_of(__nv_bfloat162 value, int lane) {
  return __low2float(value) == 100.0f + lane && __high2float(value) == -100.0f - lane;
}

template <class T>
__global__ void shuffle(Received<T>* out, int width) {
  const int thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const T mine = value_of<T>(thread % 32);
  for (int distance = 0; distance < kDistances; ++distance) {
    Received<T>& received = out[thread * kDistances + distance];
    received.direct = __shfl_sync(~0u, mine, distance, width);
    received.up = __shfl_up_sync(~0u, mine, static_cast<unsigned>(distance), width);
    received.down = __shfl_down_sync(~0u, mine, static_cast<unsigned>(distance), width);
    received.flipped = __shfl_xor_sync(~0u, mine, distance, width);
  }
}

template <class T>
struct Shuffles : testing::Test {};
using Types = testing::Types<int, unsigned, long long, unsigned long long, float, double, __half, __nv_bfloat16,
                             __half2, __nv_bfloat162>;
TYPED_TEST_SUITE(Shuffles, Types);

TYPED_TEST(Shuffles, ReadTheRightLane) {
  const int threads = 64;
  for (const int width : {1, 2, 4, 8, 16, 32}) {
    DeviceBuffer<Received<TypeParam>> out(threads * kDistances);
    launch(shuffle<TypeParam>, {1, threads}, out.data(), width);
    const auto results = out.download();
    for (int thread = 0; thread < threads; ++thread) {
      for (int distance = 0; distance < kDistances; ++distance) {
        const auto& found = results[thread * kDistances + distance];
        const Sources expected = model(thread % 32, distance, width);
        const std::string where = "width " + std::to_string(width) + ", distance " + std::to_string(distance) +
                                  ", thread " + std::to_string(thread);
        ASSERT_TRUE(is_value_of(found.direct, expected.direct)) << "__shfl_sync, " << where;
        ASSERT_TRUE(is_value_of(found.up, expected.up)) << "__shfl_up_sync, " << where;
        ASSERT_TRUE(is_value_of(found.down, expected.down)) << "__shfl_down_sync, " << where;
        ASSERT_TRUE(is_value_of(found.flipped, expected.flipped)) << "__shfl_xor_sync, " << where;
      }
    }
  }
}

__global__ void shuffle_bits(const unsigned long long* in, unsigned long long* out) {
  out[threadIdx.x] = __shfl_xor_sync(~0u, in[threadIdx.x], 5);
}

TEST(Shuffles, MoveAllBits) {
  std::vector<unsigned long long> values(32);
  for (unsigned i = 0; i < 32; ++i) values[i] = (i + 1) * 0x9E3779B97F4A7C15u;
  const DeviceBuffer<unsigned long long> in(values);
  DeviceBuffer<unsigned long long> out(32);
  launch(shuffle_bits, {1, 32}, in.data(), out.data());
  for (unsigned i = 0; i < 32; ++i) EXPECT_EQ(out.download()[i], values[i ^ 5]);
}

/// Lanes of two masks call in two branches, and at last all lanes that the block has.
__global__ void shuffle_parts(int* out, int threads) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int sum = 0;
  if (lane % 2 == 0) {
    sum = __shfl_xor_sync(0x55555555u, 100 + lane, 2);
  } else if (lane < 16) {
    sum = __shfl_up_sync(0x0000AAAAu, 100 + lane, 2);
  }
  __syncthreads();
  const unsigned left = static_cast<unsigned>(threads) - threadIdx.x / 32 * 32;
  const unsigned all = left >= 32 ? ~0u : (1u << left) - 1;
  out[threadIdx.x] = sum * 1000 + __shfl_sync(all, 100 + lane, 3);
}

TEST(Shuffles, WorkAmongSomeLanesAndInAShortWarp) {
  const int threads = 32 + 32;
  DeviceBuffer<int> out(threads);
  launch(shuffle_parts, {1, threads}, out.data(), threads);
  const std::vector<int> result = out.download();
  for (int i = 0; i < threads; ++i) {
    const int lane = i % 32;
    const int sum = lane % 2 == 0 ? 100 + (lane ^ 2) : lane >= 16 ? 0 : lane == 1 ? 101 : 100 + lane - 2;
    EXPECT_EQ(result[i], sum * 1000 + 103) << i;
  }
}

__global__ void shuffle_few(int* out, unsigned mask) {
  out[threadIdx.x] = __shfl_down_sync(mask, static_cast<int>(threadIdx.x), 1);
}

TEST(Shuffles, WorkInBlocksThatAreNoMultipleOf32) {
  for (const unsigned threads : {1u, 5u, 31u}) {
    DeviceBuffer<int> out(threads);
    launch(shuffle_few, {1, threads}, out.data(), (1u << threads) - 1);
    const std::vector<int> result = out.download();
    for (unsigned i = 0; i + 1 < threads; ++i) EXPECT_EQ(result[i], static_cast<int>(i) + 1);
  }
}

#if TUTORIAL_EMULATOR

__global__ void read_a_lane_outside(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0x0000FFFFu, 1.0f, static_cast<int>(threadIdx.x) + 8);
}

TEST(EmulatedShuffles, GiveNaNForALaneOutsideOfTheMask) {
  DeviceBuffer<float> out(16);
  launch(read_a_lane_outside, {1, 32}, out.data());
  const std::vector<float> result = out.download();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(result[i], 1.0f);
  for (int i = 8; i < 16; ++i) EXPECT_TRUE(std::isnan(result[i])) << i;
}

__global__ void name_missing_lanes(float* out) {
  out[threadIdx.x] = __shfl_down_sync(~0u, 1.0f, 1);
}

TEST(EmulatedShuffles, GiveNaNForALaneThatTheBlockHasNot) {
  DeviceBuffer<float> out(5);
  launch(name_missing_lanes, {1, 5}, out.data());
  const std::vector<float> result = out.download();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(result[i], 1.0f);
  EXPECT_TRUE(std::isnan(result[4]));
}

__global__ void use_width(int* out, int width) {
  out[threadIdx.x] = __shfl_sync(~0u, 1, 0, width);
}

TEST(EmulatedShuffles, ReportAWidthThatIsNoPowerOfTwo) {
  DeviceBuffer<int> out(32);
  for (const int width : {0, -1, 3, 24, 33, 64}) {
    EXPECT_THROW(launch(use_width, {1, 32}, out.data(), width), CudaError) << width;
  }
}

__global__ void leave_lanes_out(int* out) {
  if (threadIdx.x < 20) out[threadIdx.x] = __shfl_sync(~0u, 1, 0);
}

TEST(EmulatedShuffles, ReportLanesThatNeverCome) {
  DeviceBuffer<int> out(32);
  try {
    launch(leave_lanes_out, {1, 32}, out.data());
    FAIL() << "not noticed";
  } catch (const CudaError& error) {
    EXPECT_NE(std::string(error.what()).find("leave_lanes_out"), std::string::npos) << error.what();
  }
}

#endif

}  // namespace
}  // namespace tutorial
