/// @file
/// Loads and stores of every width, what they count on the emulator, and dynamic shared memory.

#include "common/device/memory.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"

#if TUTORIAL_EMULATOR
#include <emulator/counters.hpp>
#endif

namespace tutorial {
namespace {

struct Twelve {
  std::int32_t values[3];
};

template <class T>
struct Memory : testing::Test {};
using Types = testing::Types<std::int8_t, __nv_bfloat16, __half, float, int, unsigned, __nv_bfloat162, double, float2,
                             std::int64_t, Twelve, float3, float4, int4, uint4, double2>;
TYPED_TEST_SUITE(Memory, Types);

template <class T>
__global__ void copy(const T* in, T* out, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) store_global(&out[i], load_global(&in[i]));
}

TYPED_TEST(Memory, CopiesBitsAndCountsBytes) {
  const int count = 100;
  std::vector<unsigned char> bytes(count * sizeof(TypeParam));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 7 + 3);
  DeviceBuffer<TypeParam> in(count), out(count);
  check(cudaMemcpy(in.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
#if TUTORIAL_EMULATOR
  emulator::reset_counters();
#endif
  launch(copy<TypeParam>, {4, 32}, in.data(), out.data(), count);
#if TUTORIAL_EMULATOR
  EXPECT_EQ(emulator::counters().global_bytes_read, bytes.size());
  EXPECT_EQ(emulator::counters().global_bytes_written, bytes.size());
#endif
  std::vector<unsigned char> result(bytes.size());
  check(cudaMemcpy(result.data(), out.data(), result.size(), cudaMemcpyDeviceToHost));
  EXPECT_EQ(result, bytes);
}

__global__ void copy_with_hint(const float4* in, float4* out, int count, Eviction eviction) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) store_global(&out[i], load_global(&in[i]), eviction);
}

TEST(Memory, StoresTheSameWithAHint) {
  std::vector<float4> host(100);
  for (int i = 0; i < 100; ++i) host[i] = make_float4(float(i), float(i + 1), -1, 0.5f);
  for (const Eviction eviction : {Eviction::kNormal, Eviction::kFirst}) {
    DeviceBuffer<float4> in(host), out(100);
#if TUTORIAL_EMULATOR
    emulator::reset_counters();
#endif
    launch(copy_with_hint, {4, 32}, in.data(), out.data(), 100, eviction);
#if TUTORIAL_EMULATOR
    EXPECT_EQ(emulator::counters().global_bytes_written, 1600u);
#endif
    const std::vector<float4> result = out.download();
    EXPECT_EQ(std::memcmp(result.data(), host.data(), 1600), 0);
  }
}

__global__ void double_in_place(float4* data, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const float4 x = load_for_update(&data[i]);
  store_global(&data[i], make_float4(2 * x.x, 2 * x.y, 2 * x.z, 2 * x.w));
}

TEST(Memory, UpdatesInPlace) {
  std::vector<float4> host(100);
  for (int i = 0; i < 100; ++i) host[i] = make_float4(float(i), float(i + 1), -1, 0.5f);
  DeviceBuffer<float4> data(host);
#if TUTORIAL_EMULATOR
  emulator::reset_counters();
#endif
  launch(double_in_place, {4, 32}, data.data(), 100);
#if TUTORIAL_EMULATOR
  EXPECT_EQ(emulator::counters().global_bytes_read, 1600u);
  EXPECT_EQ(emulator::counters().global_bytes_written, 1600u);
#endif
  const std::vector<float4> result = data.download();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(result[i].x, 2 * float(i));
    EXPECT_EQ(result[i].y, 2 * float(i + 1));
    EXPECT_EQ(result[i].z, -2);
    EXPECT_EQ(result[i].w, 1);
  }
}

__global__ void look_at_shared(std::uintptr_t* out) {
  out[0] = reinterpret_cast<std::uintptr_t>(dynamic_shared<float>());
  out[1] = reinterpret_cast<std::uintptr_t>(dynamic_shared<double>());
}

TEST(DynamicShared, IsOneAlignedStretch) {
  DeviceBuffer<std::uintptr_t> out(2);
  launch(look_at_shared, {1, 1, 1024}, out.data());
  const auto addresses = out.download();
  EXPECT_EQ(addresses[0], addresses[1]);
  EXPECT_EQ(addresses[0] % 128, 0u);
}

}  // namespace
}  // namespace tutorial
