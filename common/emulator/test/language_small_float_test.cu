/// @file
/// __nv_bfloat16 and __half against a model that rounds in double: all 65536 patterns, all midpoints between
/// neighbours and the numbers next to these, on the host and in a kernel.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"

namespace tutorial {
namespace {

struct BFloat16 {
  using Type = __nv_bfloat16;
  using Pair = __nv_bfloat162;
  static constexpr int kFractionBits = 7, kLeastExponent = -126, kMostExponent = 127;

  static __host__ __device__ float to_float(std::uint16_t bits) { return __bfloat162float(__ushort_as_bfloat16(bits)); }
  static __host__ __device__ std::uint16_t from_float(float x) { return __bfloat16_as_ushort(__float2bfloat16(x)); }
  static __host__ __device__ std::uint16_t from_double(double x) { return __bfloat16_as_ushort(__double2bfloat16(x)); }
};

struct Half {
  using Type = __half;
  using Pair = __half2;
  static constexpr int kFractionBits = 10, kLeastExponent = -14, kMostExponent = 15;

  static __host__ __device__ float to_float(std::uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
  static __host__ __device__ std::uint16_t from_float(float x) { return __half_as_ushort(__float2half(x)); }
  static __host__ __device__ std::uint16_t from_double(double x) { return __half_as_ushort(__double2half(x)); }
};

/// The number that a pattern stands for, by the definition of IEEE 754.
template <class Format>
double value_of(std::uint16_t bits) {
  const int fraction = bits & ((1 << Format::kFractionBits) - 1);
  const int exponent = bits >> Format::kFractionBits & ((1 << (15 - Format::kFractionBits)) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == Format::kMostExponent - Format::kLeastExponent + 2) return fraction ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, Format::kLeastExponent - Format::kFractionBits);
  return sign * std::ldexp(fraction + (1 << Format::kFractionBits),
                           exponent - 1 + Format::kLeastExponent - Format::kFractionBits);
}

/// A double rounded to nearest even in the format, by the definition of rounding.
template <class Format>
double rounded(double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), Format::kLeastExponent);
  const double quantum = std::ldexp(1.0, exponent - Format::kFractionBits);
  const double result = std::nearbyint(x / quantum) * quantum;
  return std::abs(result) < std::ldexp(1.0, Format::kMostExponent + 1) ? result : std::copysign(INFINITY, x);
}

/// Whether a pattern stands for `expected`. A NaN may have any of its patterns.
template <class Format>
bool is(std::uint16_t bits, double expected) {
  if (std::isnan(expected)) return std::isnan(value_of<Format>(bits));
  return value_of<Format>(bits) == expected && (bits >> 15 != 0) == std::signbit(expected);
}

/// Every number halfway between neighbours, its own neighbours, and every number of the format.
template <class Format, class Real>
std::vector<Real> hard_cases() {
  std::vector<Real> cases;
  const auto add = [&](Real x) {
    for (const Real y : {x, std::nextafter(x, Real(INFINITY)), std::nextafter(x, Real(-INFINITY))}) cases.push_back(y);
  };
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const double x = value_of<Format>(static_cast<std::uint16_t>(bits));
    cases.push_back(static_cast<Real>(x));
    if (!std::isfinite(x)) continue;
    double next = value_of<Format>(static_cast<std::uint16_t>(bits + 1));
    if (!std::isfinite(next)) next = std::copysign(std::ldexp(1.0, Format::kMostExponent + 1), x);
    add(static_cast<Real>((x + next) / 2));
  }
  using Roofline = std::numeric_limits<Real>;
  for (const Real x :
       {Roofline::max(), Roofline::min(), Roofline::denorm_min(), Roofline::infinity(), Roofline::quiet_NaN()}) {
    cases.push_back(x);
    cases.push_back(-x);
  }
  return cases;
}

// A handful of threads does the work of many: on the emulator with ThreadSanitizer a thread costs a millisecond.
constexpr unsigned kBlocks = 4, kThreads = 32;

__device__ unsigned thread_number() {
  return blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ unsigned thread_count() {
  return gridDim.x * blockDim.x;
}

template <class Format>
__global__ void decode(float* out) {
  for (unsigned i = thread_number(); i < 0x10000; i += thread_count()) {
    out[i] = Format::to_float(static_cast<std::uint16_t>(i));
  }
}

template <class Format, class Real>
__global__ void encode(const Real* in, std::uint16_t* out, unsigned count) {
  for (unsigned i = thread_number(); i < count; i += thread_count()) {
    if constexpr (std::is_same_v<Real, float>) {
      out[i] = Format::from_float(in[i]);
    } else {
      out[i] = Format::from_double(in[i]);
    }
  }
}

template <class Format>
struct SmallFloat : testing::Test {};
using Formats = testing::Types<BFloat16, Half>;
TYPED_TEST_SUITE(SmallFloat, Formats);

TYPED_TEST(SmallFloat, DecodesEveryPattern) {
  DeviceBuffer<float> out(0x10000);
  launch(decode<TypeParam>, {kBlocks, kThreads}, out.data());
  const std::vector<float> on_device = out.download();
  for (unsigned i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const double expected = value_of<TypeParam>(bits);
    for (const float found : {on_device[i], TypeParam::to_float(bits)}) {
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(found)) << std::hex << i;
      } else {
        ASSERT_EQ(found, expected) << std::hex << i;
        ASSERT_EQ(std::signbit(found), std::signbit(expected)) << std::hex << i;
      }
    }
  }
}

template <class Format, class Real>
void expect_rounded(const std::vector<Real>& cases) {
  const auto count = static_cast<unsigned>(cases.size());
  const DeviceBuffer<Real> in(cases);
  DeviceBuffer<std::uint16_t> out(count);
  launch(encode<Format, Real>, {kBlocks, kThreads}, in.data(), out.data(), count);
  const std::vector<std::uint16_t> on_device = out.download();
  for (unsigned i = 0; i < count; ++i) {
    std::uint16_t on_host;
    if constexpr (std::is_same_v<Real, float>) {
      on_host = Format::from_float(cases[i]);
    } else {
      on_host = Format::from_double(cases[i]);
    }
    const double expected = rounded<Format>(cases[i]);
    ASSERT_TRUE(is<Format>(on_host, expected)) << std::hexfloat << cases[i] << " became " << std::hex << on_host;
    ASSERT_TRUE(is<Format>(on_device[i], expected))
        << std::hexfloat << cases[i] << " became " << std::hex << on_device[i];
  }
}

TYPED_TEST(SmallFloat, RoundsFloatsToNearestEven) {
  expect_rounded<TypeParam>(hard_cases<TypeParam, float>());
}

TYPED_TEST(SmallFloat, RoundsDoublesOnce) {
  expect_rounded<TypeParam>(hard_cases<TypeParam, double>());
}

TYPED_TEST(SmallFloat, MakesEveryFloatNaNTheSame) {
  std::vector<float> cases;
  for (const std::uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffc12345u}) {
    cases.push_back(std::bit_cast<float>(bits));
  }
  const auto count = static_cast<unsigned>(cases.size());
  const DeviceBuffer<float> in(cases);
  DeviceBuffer<std::uint16_t> out(count);
  launch(encode<TypeParam, float>, {1, 1}, in.data(), out.data(), count);
  EXPECT_EQ(out.download(), std::vector<std::uint16_t>(count, 0x7fff));
  for (const float x : cases) EXPECT_EQ(TypeParam::from_float(x), 0x7fff);
}

TYPED_TEST(SmallFloat, RoundsFloatsOfAllMagnitudes) {
  std::vector<float> cases;
  for (std::uint32_t i = 0; i < 200000; ++i) cases.push_back(std::bit_cast<float>(i * 2654435761u));  // Knuth's hash
  expect_rounded<TypeParam>(cases);
}

/// What the operators give for a pair of operands.
struct Outcome {
  std::uint16_t sum, difference, product, quotient, negative, accumulated;
  bool equal, less, at_most;
};

template <class Format>
__device__ Outcome operate(typename Format::Type a, typename Format::Type b) {
  using T = typename Format::Type;
  T accumulated = a;
  accumulated *= b;  // no sum right after it: a GPU may fuse the two
  accumulated /= a;
  accumulated += b;
  accumulated -= a;
  const auto bits = [](T x) { return Format::from_float(static_cast<float>(x)); };
  return {bits(a + b), bits(a - b), bits(a * b), bits(a / b), bits(-a), bits(accumulated), a == b, a < b, a <= b};
}

template <class Format>
__global__ void operate_on_all(const float* operands, Outcome* out, unsigned count) {
  for (unsigned i = thread_number(); i < count; i += thread_count()) {
    out[i] = operate<Format>(operands[2 * i], operands[2 * i + 1]);
  }
}

TYPED_TEST(SmallFloat, OperatorsRoundOnce) {
  std::vector<float> operands;
  for (unsigned i = 0; i < 20000; ++i) {
    for (const unsigned seed : {i * 2u, i * 2u + 1}) {
      const unsigned hash = seed * 2654435761u;
      const double sign = hash & 1 ? -1 : 1;
      operands.push_back(static_cast<float>(
          rounded<TypeParam>(sign * std::ldexp(1 + (hash >> 8) * 0x1p-24, static_cast<int>(hash >> 1 & 7) - 4))));
    }
  }
  operands.insert(operands.end(), {1, 1, 0, -0.0f, INFINITY, -INFINITY, 0, 0, NAN, 1, 1, NAN, NAN, NAN});
  const auto count = static_cast<unsigned>(operands.size() / 2);
  const DeviceBuffer<float> in(operands);
  DeviceBuffer<Outcome> out(count);
  launch(operate_on_all<TypeParam>, {kBlocks, kThreads}, in.data(), out.data(), count);
  const std::vector<Outcome> outcomes = out.download();
  for (unsigned i = 0; i < count; ++i) {
    const double a = operands[2 * i], b = operands[2 * i + 1];
    const auto round = [](double x) { return rounded<TypeParam>(x); };
    const Outcome& found = outcomes[i];
    EXPECT_TRUE(is<TypeParam>(found.sum, round(a + b))) << a << " + " << b;
    EXPECT_TRUE(is<TypeParam>(found.difference, round(a - b))) << a << " - " << b;
    EXPECT_TRUE(is<TypeParam>(found.product, round(a * b))) << a << " * " << b;
    EXPECT_TRUE(is<TypeParam>(found.quotient, round(a / b))) << a << " / " << b;
    EXPECT_TRUE(is<TypeParam>(found.negative, -a)) << "-" << a;
    EXPECT_TRUE(is<TypeParam>(found.accumulated, round(round(round(round(a * b) / a) + b) - a))) << a << ", " << b;
    EXPECT_EQ(found.equal, a == b);
    EXPECT_EQ(found.less, a < b);
    EXPECT_EQ(found.at_most, a <= b);
  }
}

/// The register that holds a pair.
template <class Pair>
std::uint32_t bits_of(Pair pair) {
  std::uint32_t bits;
  std::memcpy(&bits, &pair, sizeof bits);
  return bits;
}

TEST(SmallFloatPair, KeepsItsHalvesApart) {
  const __nv_bfloat162 b = __floats2bfloat162_rn(1.5f, -2.0f);
  EXPECT_EQ(__low2float(b), 1.5f);
  EXPECT_EQ(__high2float(b), -2.0f);
  EXPECT_EQ(__bfloat162float(__low2bfloat16(b)), 1.5f);
  EXPECT_EQ(__bfloat162float(__high2bfloat16(b)), -2.0f);
  EXPECT_EQ(__bfloat1622float2(b).y, -2.0f);
  EXPECT_EQ(__bfloat1622float2(__float22bfloat162_rn(make_float2(3, 4))).x, 3.0f);
  EXPECT_EQ(__high2float(__halves2bfloat162(__float2bfloat16(3), __float2bfloat16(4))), 4.0f);
  EXPECT_EQ(__high2float(__float2bfloat162_rn(5)), 5.0f);
  EXPECT_EQ(__low2float(__bfloat162bfloat162(__float2bfloat16_rn(6))), 6.0f);
  EXPECT_EQ(bits_of(__floats2bfloat162_rn(1, 2)), 0x40003f80u);

  const __half2 h = __floats2half2_rn(1.5f, -2.0f);
  EXPECT_EQ(__low2float(h), 1.5f);
  EXPECT_EQ(__high2float(h), -2.0f);
  EXPECT_EQ(__half2float(__low2half(h)), 1.5f);
  EXPECT_EQ(__half2float(__high2half(h)), -2.0f);
  EXPECT_EQ(__half22float2(h).y, -2.0f);
  EXPECT_EQ(__half22float2(__float22half2_rn(make_float2(3, 4))).x, 3.0f);
  EXPECT_EQ(__high2float(__halves2half2(__float2half(3), __float2half(4))), 4.0f);
  EXPECT_EQ(__high2float(__float2half2_rn(5)), 5.0f);
  EXPECT_EQ(__low2float(__half2half2(__float2half_rn(6))), 6.0f);
  EXPECT_EQ(bits_of(__floats2half2_rn(1, 2)), 0x40003c00u);
  static_assert(alignof(__half2) == 4 && sizeof(__half2) == 4 && alignof(__nv_bfloat162) == 4);
  static_assert(alignof(__half) == 2 && sizeof(__half) == 2 && sizeof(__nv_bfloat16) == 2);
}

template <class Format>
__global__ void operate_on_pairs(float2* out) {
  using Pair = typename Format::Pair;
  const Pair a(2.0f, 3.0f), b(0.5f, -4.0f);
  const auto store = [&](int i, Pair x) { out[i] = make_float2(__low2float(x), __high2float(x)); };
  store(0, a + b);
  store(1, a - b);
  store(2, a * b);
  store(3, a / b);
  store(4, -a);
  Pair c = a;
  c += b;
  c -= a;
  store(5, c);
}

TYPED_TEST(SmallFloat, PairsWorkOnEachHalf) {
  DeviceBuffer<float2> out(6);
  launch(operate_on_pairs<TypeParam>, {1, 1}, out.data());
  const float expected[6][2] = {{2.5f, -1}, {1.5f, 7}, {1, -12}, {4, -0.75f}, {-2, -3}, {0.5f, -4}};
  const std::vector<float2> result = out.download();
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(result[i].x, expected[i][0]) << i;
    EXPECT_EQ(result[i].y, expected[i][1]) << i;
  }
}

}  // namespace
}  // namespace tutorial
