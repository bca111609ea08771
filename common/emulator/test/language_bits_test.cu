/// @file
/// Functions on bits, and conversions between floats and integers.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"

namespace tutorial {
namespace {

struct Counts {
  int ones, ones_wide, leading, leading_wide, first, first_wide;
  unsigned reversed;
  unsigned long long reversed_wide;
  unsigned high;
  int high_signed;
};

__global__ void count(Counts* out, unsigned x, unsigned long long wide, unsigned factor) {
  Counts counts;
  counts.ones = __popc(x);
  counts.ones_wide = __popcll(wide);
  counts.leading = __clz(static_cast<int>(x));
  counts.leading_wide = __clzll(static_cast<long long>(wide));
  counts.first = __ffs(static_cast<int>(x));
  counts.first_wide = __ffsll(static_cast<long long>(wide));
  counts.reversed = __brev(x);
  counts.reversed_wide = __brevll(wide);
  counts.high = __umulhi(x, factor);
  counts.high_signed = __mulhi(static_cast<int>(x), static_cast<int>(factor));
  *out = counts;
}

Counts run(unsigned x, unsigned long long wide, unsigned factor) {
  DeviceBuffer<Counts> out(1);
  launch(count, {1, 1}, out.data(), x, wide, factor);
  return out.download()[0];
}

TEST(Bits, CountAndReverse) {
  const Counts some = run(0x00F00010u, 0x0000100000000008u, 0x80000001u);
  EXPECT_EQ(some.ones, 5);
  EXPECT_EQ(some.ones_wide, 2);
  EXPECT_EQ(some.leading, 8);
  EXPECT_EQ(some.leading_wide, 19);
  EXPECT_EQ(some.first, 5);
  EXPECT_EQ(some.first_wide, 4);
  EXPECT_EQ(some.reversed, 0x08000F00u);
  EXPECT_EQ(some.reversed_wide, 0x1000000000080000u);
  EXPECT_EQ(some.high, 0x00780008u);
  EXPECT_EQ(some.high_signed, -0x00780008);

  const Counts none = run(0, 0, ~0u);
  EXPECT_EQ(none.ones, 0);
  EXPECT_EQ(none.leading, 32);
  EXPECT_EQ(none.leading_wide, 64);
  EXPECT_EQ(none.first, 0);
  EXPECT_EQ(none.first_wide, 0);

  const Counts all = run(~0u, ~0ull, ~0u);
  EXPECT_EQ(all.ones, 32);
  EXPECT_EQ(all.ones_wide, 64);
  EXPECT_EQ(all.leading, 0);
  EXPECT_EQ(all.first, 1);
  EXPECT_EQ(all.high, ~0u - 1);
  EXPECT_EQ(all.high_signed, 0);
}

__global__ void reinterpret(unsigned* words, long long* wide) {
  words[0] = __float_as_uint(-1.5f);
  words[1] = static_cast<unsigned>(__float_as_int(-1.5f));
  words[2] = __uint_as_float(0x40490FDBu) == 3.14159274f;
  words[3] = __int_as_float(static_cast<int>(0x80000000u)) == 0.0f;
  wide[0] = __double_as_longlong(1.0);
  wide[1] = __longlong_as_double(0x4000000000000000) == 2.0;
}

TEST(Bits, AreThoseOfTheFloat) {
  DeviceBuffer<unsigned> words(4);
  DeviceBuffer<long long> wide(2);
  launch(reinterpret, {1, 1}, words.data(), wide.data());
  EXPECT_EQ(words.download(), (std::vector<unsigned>{0xBFC00000u, 0xBFC00000u, 1, 1}));
  EXPECT_EQ(wide.download(), (std::vector<long long>{0x3FF0000000000000, 1}));
}

struct Integers {
  int nearest, towards_zero, up, down;
  unsigned unsigned_nearest, unsigned_towards_zero;
};

__global__ void convert(const float* in, Integers* out) {
  const float x = in[threadIdx.x];
  out[threadIdx.x] = {__float2int_rn(x), __float2int_rz(x),  __float2int_ru(x),
                      __float2int_rd(x), __float2uint_rn(x), __float2uint_rz(x)};
}

TEST(Conversions, RoundAndSaturate) {
  const std::vector<float> values{0.5f, 1.5f,     -2.5f,     -0.25f, 2147483520.0f, 3e9f, -3e9f,
                                  5e9f, INFINITY, -INFINITY, NAN};
  const auto count = static_cast<unsigned>(values.size());
  const DeviceBuffer<float> in(values);
  DeviceBuffer<Integers> out(count);
  launch(convert, {1, count}, in.data(), out.data());
  const Integers expected[] = {{0, 0, 1, 0, 0, 0},
                               {2, 1, 2, 1, 2, 1},
                               {-2, -2, -2, -3, 0, 0},
                               {0, 0, 0, -1, 0, 0},
                               {2147483520, 2147483520, 2147483520, 2147483520, 2147483520, 2147483520},
                               {INT_MAX, INT_MAX, INT_MAX, INT_MAX, 3000000000u, 3000000000u},
                               {INT_MIN, INT_MIN, INT_MIN, INT_MIN, 0, 0},
                               {INT_MAX, INT_MAX, INT_MAX, INT_MAX, UINT_MAX, UINT_MAX},
                               {INT_MAX, INT_MAX, INT_MAX, INT_MAX, UINT_MAX, UINT_MAX},
                               {INT_MIN, INT_MIN, INT_MIN, INT_MIN, 0, 0},
                               {0, 0, 0, 0, 0, 0}};
  const std::vector<Integers> result = out.download();
  for (unsigned i = 0; i < count; ++i) {
    EXPECT_EQ(result[i].nearest, expected[i].nearest) << values[i];
    EXPECT_EQ(result[i].towards_zero, expected[i].towards_zero) << values[i];
    EXPECT_EQ(result[i].up, expected[i].up) << values[i];
    EXPECT_EQ(result[i].down, expected[i].down) << values[i];
    EXPECT_EQ(result[i].unsigned_nearest, expected[i].unsigned_nearest) << values[i];
    EXPECT_EQ(result[i].unsigned_towards_zero, expected[i].unsigned_towards_zero) << values[i];
  }
}

__global__ void convert_back(float* out) {
  out[0] = __int2float_rn(16777217);
  out[1] = __int2float_rn(-16777219);
  out[2] = __uint2float_rn(4294967295u);
}

TEST(Conversions, RoundIntegersToNearestEven) {
  DeviceBuffer<float> out(3);
  launch(convert_back, {1, 1}, out.data());
  EXPECT_EQ(out.download(), (std::vector<float>{16777216.0f, -16777220.0f, 4294967296.0f}));
}

}  // namespace
}  // namespace tutorial
