/// @file
/// The tensor core's product, from fragments that are filled element by element as mma.cuh documents them.

#include "common/device/mma.cuh"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"
#include "common/device/pack.cuh"

namespace tutorial {
namespace {

/// D = C + A B, with A [16, 16], B [16, 8], C and D [16, 8].
template <class Element>
__device__ void multiply_one(const float* A, const float* B, const float* C, float* D) {
  const unsigned g = threadIdx.x / 4, p = threadIdx.x % 4 * 2;
  const auto a_pair = [&](unsigned m, unsigned k) { return pack<Element>(A[m * 16 + k], A[m * 16 + k + 1]); };
  const auto b_pair = [&](unsigned k, unsigned n) { return pack<Element>(B[k * 8 + n], B[(k + 1) * 8 + n]); };
  const std::uint32_t a[4] = {a_pair(g, p), a_pair(g + 8, p), a_pair(g, p + 8), a_pair(g + 8, p + 8)};
  const std::uint32_t b[2] = {b_pair(p, g), b_pair(p + 8, g)};
  float d[4] = {C[g * 8 + p], C[g * 8 + p + 1], C[(g + 8) * 8 + p], C[(g + 8) * 8 + p + 1]};
  mma_m16n8k16<Element>(d, a, b);
  D[g * 8 + p] = d[0];
  D[g * 8 + p + 1] = d[1];
  D[(g + 8) * 8 + p] = d[2];
  D[(g + 8) * 8 + p + 1] = d[3];
}

/// One product after the other.
template <class Element>
__global__ void multiply(const float* A, const float* B, const float* C, float* D, unsigned products) {
  for (unsigned i = blockIdx.x; i < products; i += gridDim.x) {
    multiply_one<Element>(A + i * 256, B + i * 128, C + i * 128, D + i * 128);
  }
}

/// A number of products, and what they must give.
struct Problem {
  explicit Problem(unsigned count) : products(count), A(count * 256), B(count * 128), C(count * 128) {}

  std::vector<double> expected() const {
    std::vector<double> D(C.begin(), C.end());
    for (unsigned i = 0; i < products; ++i) {
      for (unsigned m = 0; m < 16; ++m) {
        for (unsigned n = 0; n < 8; ++n) {
          for (unsigned k = 0; k < 16; ++k) {
            D[i * 128 + m * 8 + n] += static_cast<double>(A[i * 256 + m * 16 + k]) * B[i * 128 + k * 8 + n];
          }
        }
      }
    }
    return D;
  }

  template <class Element>
  std::vector<float> run() const {
    const DeviceBuffer<float> a(A), b(B), c(C);
    DeviceBuffer<float> d(C.size());
    launch(multiply<Element>, {4, 32}, a.data(), b.data(), c.data(), d.data(), products);
    return d.download();
  }

  unsigned products;
  std::vector<float> A, B, C;
};

template <class Element>
struct Mma : testing::Test {};
using Elements = testing::Types<__nv_bfloat16, __half>;
TYPED_TEST_SUITE(Mma, Elements);

TYPED_TEST(Mma, EveryElementOfAMeetsItsRowOfB) {
  Problem problem(256);
  for (unsigned i = 0; i < 256; ++i) {
    problem.A[i * 256 + i] = 1;
    for (unsigned j = 0; j < 128; ++j) problem.B[i * 128 + j] = static_cast<float>(j + 1);  // exact in both types
  }
  const auto expected = problem.expected();
  EXPECT_EQ(problem.run<TypeParam>(), std::vector<float>(expected.begin(), expected.end()));
}

TYPED_TEST(Mma, EveryElementOfBMeetsItsColumnOfA) {
  Problem problem(128);
  for (unsigned i = 0; i < 128; ++i) {
    problem.B[i * 128 + i] = 1;
    for (unsigned j = 0; j < 256; ++j) problem.A[i * 256 + j] = static_cast<float>(j + 1);
  }
  const auto expected = problem.expected();
  EXPECT_EQ(problem.run<TypeParam>(), std::vector<float>(expected.begin(), expected.end()));
}

TYPED_TEST(Mma, MultipliesAndAdds) {
  Problem problem(8);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& x : problem.A) x = static_cast<float>(static_cast<TypeParam>(normal(random)));
  for (float& x : problem.B) x = static_cast<float>(static_cast<TypeParam>(normal(random)));
  for (float& x : problem.C) x = normal(random);
  const auto expected = problem.expected();
  const auto result = problem.run<TypeParam>();
  // 16 terms of about 1. A tensor core cuts products off at the largest one's last bits instead of rounding.
  for (std::size_t i = 0; i < result.size(); ++i) ASSERT_NEAR(result[i], expected[i], 2e-5) << i;
}

__global__ void round_trip(const float2* in, float2* out) {
  out[0] = unpack(pack(in[0].x, in[0].y));
  out[1] = unpack<__half>(pack<__half>(in[0].x, in[0].y));
}

TEST(Pack, RoundsEachNumberAndKeepsTheirOrder) {
  const DeviceBuffer<float2> in(std::vector<float2>{{1.0f + 1.0f / 512, -3.0f}});
  DeviceBuffer<float2> out(2);
  launch(round_trip, {1, 1}, in.data(), out.data());
  const auto result = out.download();
  EXPECT_EQ(result[0].x, 1.0f);  // 7 bits after the point are not enough
  EXPECT_EQ(result[0].y, -3.0f);
  EXPECT_EQ(result[1].x, 1.0f + 1.0f / 512);  // 10 are
  EXPECT_EQ(result[1].y, -3.0f);
}

}  // namespace
}  // namespace tutorial
