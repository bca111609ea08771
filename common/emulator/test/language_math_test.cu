/// @file
/// Device mathematics against the C library in double.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"

namespace tutorial {
namespace {

constexpr int kFunctions = 26;

__global__ void evaluate(const float* in, float* out, int count) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= count) return;
  const float x = in[i];
  const float results[kFunctions] = {expf(x),          exp2f(x),
                                     expm1f(x),        logf(x),
                                     log2f(x),         log1pf(x),
                                     sqrtf(x),         rsqrtf(x),
                                     tanhf(x),         fabsf(x),
                                     fmaf(x, x, 1.0f), powf(x, 1.5f),
                                     floorf(x),        __expf(x),
                                     __exp10f(x),      __logf(x),
                                     __log2f(x),       __log10f(x),
                                     __powf(x, 1.5f),  __sinf(x),
                                     __cosf(x),        __fdividef(1.0f, x),
                                     __frcp_rn(x),     __fsqrt_rn(x),
                                     __frsqrt_rn(x),   __fmaf_rn(x, x, 1.0f)};
  for (int j = 0; j < kFunctions; ++j) out[i * kFunctions + j] = results[j];
}

TEST(Math, AgreesWithTheCLibrary) {
  std::vector<float> values;
  for (int i = 1; i < 60; ++i) values.push_back(static_cast<float>(i) * 0.05f);
  const DeviceBuffer<float> in(values);
  DeviceBuffer<float> out(values.size() * kFunctions);
  launch(evaluate, {1, 64}, in.data(), out.data(), static_cast<int>(values.size()));
  const std::vector<float> results = out.download();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = values[i];
    const double expected[kFunctions] = {
        std::exp(x),      std::exp2(x),     std::expm1(x),   std::log(x), std::log2(x), std::log1p(x),
        std::sqrt(x),     1 / std::sqrt(x), std::tanh(x),    x,           x * x + 1,    std::pow(x, 1.5),
        std::floor(x),    std::exp(x),      std::pow(10, x), std::log(x), std::log2(x), std::log10(x),
        std::pow(x, 1.5), std::sin(x),      std::cos(x),     1 / x,       1 / x,        std::sqrt(x),
        1 / std::sqrt(x), x * x + 1};
    // The fast functions of a GPU are good to 2^-21 or so of the larger of the result and 1.
    for (int j = 0; j < kFunctions; ++j) {
      ASSERT_NEAR(results[i * kFunctions + j], expected[j], 2e-6 * std::max(1.0, std::abs(expected[j])))
          << "function " << j << " of " << x;
    }
  }
}

__global__ void compare(int* integers, unsigned* naturals, long long* wide, float* floats, double* doubles) {
  integers[0] = min(3, -4);
  integers[1] = max(3, -4);
  naturals[0] = min(3u, ~0u);
  naturals[1] = max(3u, ~0u);
  naturals[2] = max(1u, -1);
  wide[0] = min(3ll, -(1ll << 40));
  wide[1] = max(3ll, 1ll << 40);
  floats[0] = min(1.5f, -2.0f);
  floats[1] = max(1.5f, -2.0f);
  floats[2] = min(NAN, 1.0f);
  floats[3] = max(1.0f, NAN);
  floats[4] = __saturatef(1.5f);
  floats[5] = __saturatef(-0.5f);
  floats[6] = __saturatef(NAN);
  floats[7] = __saturatef(0.25f);
  doubles[0] = min(1.5, -2.0);
  doubles[1] = max(1.5f, 2.5);
}

TEST(Math, MinMaxAndSaturate) {
  DeviceBuffer<int> integers(2);
  DeviceBuffer<unsigned> naturals(3);
  DeviceBuffer<long long> wide(2);
  DeviceBuffer<float> floats(8);
  DeviceBuffer<double> doubles(2);
  launch(compare, {1, 1}, integers.data(), naturals.data(), wide.data(), floats.data(), doubles.data());
  EXPECT_EQ(integers.download(), (std::vector<int>{-4, 3}));
  EXPECT_EQ(naturals.download(), (std::vector<unsigned>{3, ~0u, ~0u}));
  EXPECT_EQ(wide.download(), (std::vector<long long>{-(1ll << 40), 1ll << 40}));
  EXPECT_EQ(floats.download(), (std::vector<float>{-2, 1.5f, 1, 1, 1, 0, 0, 0.25f}));
  EXPECT_EQ(doubles.download(), (std::vector<double>{-2, 2.5}));
}

/// x^2 - p, where p is x^2 rounded: 0 if the product is rounded first, what rounding lost if it is fused.
__global__ void round_products(const float* in, float* out) {
  const float x = *in;
  const float p = __fmul_rn(x, x);
  out[0] = __fsub_rn(__fmul_rn(x, x), p);
  out[1] = __fadd_rn(__fmul_rn(x, x), -p);
  out[2] = __fmaf_rn(x, x, -p);
  out[3] = __fdiv_rn(p, x);
}

TEST(Math, RoundsEachStepWhereItsNameSaysSo) {
  const float x = 1.0f + 0x1p-20f;
  const DeviceBuffer<float> in(std::vector<float>{x});
  DeviceBuffer<float> out(4);
  launch(round_products, {1, 1}, in.data(), out.data());
  const std::vector<float> result = out.download();
  EXPECT_EQ(result[0], 0.0f);
  EXPECT_EQ(result[1], 0.0f);
  EXPECT_EQ(result[2], 0x1p-40f);
  EXPECT_EQ(result[3], x);
}

__global__ void use_cache_hints(float4* values, float* out) {
  out[0] = __ldg(&values[0]).x + __ldcg(&values[0].y) + __ldcs(&values[0].z);
  __stcg(&out[1], 5.0f);
  __stcs(&out[2], 6.0f);
}

TEST(CacheHints, AreLoadsAndStores) {
  DeviceBuffer<float4> values(std::vector<float4>{{1, 20, 300, 0}});
  DeviceBuffer<float> out(3);
  launch(use_cache_hints, {1, 1}, values.data(), out.data());
  EXPECT_EQ(out.download(), (std::vector<float>{321, 5, 6}));
}

}  // namespace
}  // namespace tutorial
