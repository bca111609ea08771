// Shared memory: a block's own, aligned, and full of NaN when the block starts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <emulator/shared.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

#include "runtime_support.hpp"

namespace emulator::test {
namespace {

using testing::Each;

#ifdef EMULATOR_ASAN
constexpr bool kStaticIsFilled = false;  // see "Sanitizers" in the README
#else
constexpr bool kStaticIsFilled = true;
#endif

// Tells whether all of it was NaN, then leaves something else there.
bool all_nan(float* values, unsigned count) {
  bool nan = true;
  for (unsigned i = 0; i < count; ++i) {
    nan = nan && std::isnan(values[i]);
    values[i] = 1.0f;
  }
  return nan;
}

__global__ void look_at_static(int* out) {
  __shared__ float one;
  __shared__ float many[5][100];
  __shared__ double aligned[2];
  out[blockIdx.x] = all_nan(&one, 1) && all_nan(&many[0][0], 500) && std::isnan(aligned[0]) && std::isnan(aligned[1]);
  aligned[0] = aligned[1] = 0;
}

template <class T, int kCount>
__global__ void look_at_static_of_template(int* out) {
  __shared__ T values[kCount];
  out[blockIdx.x] = all_nan(values, kCount);
}

}  // namespace

// With external linkage: the linker merges its instances, and their variables are in sections of their own.
template <int kCount>
__global__ void look_at_static_of_public_template(int* out) {
  __shared__ float values[kCount];
  out[blockIdx.x] = all_nan(values, kCount);
}

namespace {

TEST(StaticSharedMemory, IsNanAtTheStartOfEachBlock) {
  if (!kStaticIsFilled) GTEST_SKIP() << "with AddressSanitizer static shared memory is not filled";
  const Environment environment("EMULATOR_THREADS", "2");
  std::vector<int> out(20, 0);
  ASSERT_EQ(run(20, 1, 0, [&] { look_at_static(out.data()); }), cudaSuccess);
  EXPECT_THAT(out, Each(1));
  out.assign(20, 0);
  ASSERT_EQ(run(20, 1, 0, [&] { look_at_static_of_template<float, 77>(out.data()); }), cudaSuccess);
  EXPECT_THAT(out, Each(1));
  out.assign(20, 0);
  ASSERT_EQ(run(20, 1, 0, [&] { look_at_static_of_public_template<77>(out.data()); }), cudaSuccess);
  EXPECT_THAT(out, Each(1));
}

__global__ void share(int* out) {
  __shared__ int first[1];
  if (threadIdx.x == 0) first[0] = static_cast<int>(blockIdx.x);
  __syncthreads();
  out[global_thread()] = first[0];
}

TEST(StaticSharedMemory, BelongsToTheBlock) {
  std::vector<int> out(50 * 64, -1);
  ASSERT_EQ(run(50, 64, 0, [&] { share(out.data()); }), cudaSuccess);
  for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], static_cast<int>(i / 64));
}

__global__ void look_at_alignment(std::uintptr_t* out) {
  __shared__ char offset;
  alignas(16) __shared__ float first[3];
  __shared__ __align__(128) char second[3];
  __shared__ float4 third[2];
  offset = 0;
  second[0] = offset;
  first[0] = 0;
  third[0] = make_float4(0, 0, 0, 0);
  out[0] = reinterpret_cast<std::uintptr_t>(first) % 16;
  out[1] = reinterpret_cast<std::uintptr_t>(second) % 128;
  out[2] = reinterpret_cast<std::uintptr_t>(third) % 16;
}

TEST(StaticSharedMemory, IsAlignedAsAskedFor) {
  std::vector<std::uintptr_t> out(3, 1);
  ASSERT_EQ(run(1, 1, 0, [&] { look_at_alignment(out.data()); }), cudaSuccess);
  EXPECT_THAT(out, Each(0));
}

__global__ void look_at_dynamic(int* out) {
  auto* values = static_cast<float*>(dynamic_shared());
  const bool aligned = reinterpret_cast<std::uintptr_t>(values) % 128 == 0;
  out[blockIdx.x] = aligned && dynamic_shared_size() == 1004 && all_nan(values, 251);
}

TEST(DynamicSharedMemory, IsNanAtTheStartOfEachBlock) {
  std::vector<int> out(20, 0);
  ASSERT_EQ(run(20, 1, 1004, [&] { look_at_dynamic(out.data()); }), cudaSuccess);
  EXPECT_THAT(out, Each(1));
}

__global__ void look_at_no_dynamic(int* out) {
  out[0] = dynamic_shared() == nullptr && dynamic_shared_size() == 0;
}

TEST(DynamicSharedMemory, IsNotThereUnlessAskedFor) {
  int out = 0;
  ASSERT_EQ(run(1, 1, 0, [&] { look_at_no_dynamic(&out); }), cudaSuccess);
  EXPECT_EQ(out, 1);
}

}  // namespace
}  // namespace emulator::test
