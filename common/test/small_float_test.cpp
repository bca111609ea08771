#include "common/small_float.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tutorial {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Half, EveryNumberOf16BitsComesBack) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float bf16 = float_from_bf16(bits);
    if (std::isnan(bf16)) {
      EXPECT_TRUE(std::isnan(float_from_bf16(bf16_from_float(bf16)))) << bits;
    } else {
      EXPECT_EQ(bf16_from_float(bf16), bits);
    }
    const float fp16 = float_from_fp16(bits);
    if (std::isnan(fp16)) {
      EXPECT_TRUE(std::isnan(float_from_fp16(fp16_from_float(fp16)))) << bits;
    } else {
      EXPECT_EQ(fp16_from_float(fp16), bits);
    }
  }
}

// Every finite fp16 number and its successor: what lies between goes to the nearer one, the middle to the even one.
TEST(Half, Fp16RoundsToNearestEven) {
  for (std::uint32_t i = 0; i < 0x7BFF; ++i) {
    const auto low = static_cast<std::uint16_t>(i);
    const auto high = static_cast<std::uint16_t>(i + 1);
    const float middle = (float_from_fp16(low) + float_from_fp16(high)) / 2;  // exact in fp32
    EXPECT_EQ(fp16_from_float(middle), i % 2 == 0 ? low : high) << i;
    EXPECT_EQ(fp16_from_float(std::nextafter(middle, 0.0f)), low) << i;
    EXPECT_EQ(fp16_from_float(std::nextafter(middle, kInfinity)), high) << i;
    EXPECT_EQ(fp16_from_float(-middle), 0x8000 | (i % 2 == 0 ? low : high)) << i;
  }
}

TEST(Half, Bf16RoundsToNearestEven) {
  for (std::uint32_t i = 0; i < 0x7F7F; ++i) {
    const auto low = static_cast<std::uint16_t>(i);
    const auto high = static_cast<std::uint16_t>(i + 1);
    const float middle = std::bit_cast<float>(i << 16 | 0x8000u);
    EXPECT_EQ(bf16_from_float(middle), i % 2 == 0 ? low : high) << i;
    EXPECT_EQ(bf16_from_float(std::bit_cast<float>(i << 16 | 0x7FFFu)), low) << i;
    EXPECT_EQ(bf16_from_float(std::bit_cast<float>(i << 16 | 0x8001u)), high) << i;
  }
}

TEST(Half, KnownValues) {
  EXPECT_EQ(bf16_from_float(1.0f), 0x3F80);
  EXPECT_EQ(bf16_from_float(-2.0f), 0xC000);
  EXPECT_EQ(float_from_bf16(0x4049), 3.140625f);
  EXPECT_EQ(fp16_from_float(1.0f), 0x3C00);
  EXPECT_EQ(fp16_from_float(65504.0f), 0x7BFF);
  EXPECT_EQ(fp16_from_float(0x1p-24f), 0x0001);
  EXPECT_EQ(float_from_fp16(0x3555), 0.333251953125f);
}

TEST(Half, TooLargeBecomesInfinity) {
  EXPECT_EQ(fp16_from_float(65519.0f), 0x7BFF);
  EXPECT_EQ(fp16_from_float(65520.0f), 0x7C00);
  EXPECT_EQ(fp16_from_float(-kInfinity), 0xFC00);
  EXPECT_EQ(bf16_from_float(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(float_from_bf16(0x7F80), kInfinity);
}

}  // namespace
}  // namespace tutorial
