#include "common/compare.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

namespace tutorial {
namespace {

Tensor filled(const Shape& shape, float value) {
  Tensor tensor(Dtype::fp32, shape);
  for (float& x : tensor.elements<float>()) x = value;
  return tensor;
}

TEST(Compare, EqualTensorsDoNotDiffer) {
  const Comparison comparison = compare(filled({2, 3}, 1.5f), filled({2, 3}, 1.5f));
  EXPECT_EQ(comparison.error, 0);
  EXPECT_TRUE(comparison.within(0));
}

TEST(Compare, ErrorIsRelativeAndNamesTheWorstElement) {
  Tensor out = filled({2, 3, 4, 5}, 2.0f);
  out.elements<float>()[5] = 2.5f;
  out.elements<float>()[119] = 1.0f;
  const Comparison comparison = compare(out, filled({2, 3, 4, 5}, 2.0f));
  EXPECT_NEAR(comparison.error, std::sqrt(1.25 / (120 * 4)), 1e-12);
  EXPECT_EQ(comparison.worst, (Shape{1, 2, 3, 4}));
  EXPECT_FALSE(comparison.within(0.05));
  EXPECT_EQ(describe(comparison, "o"), "o[1, 2, 3, 4] is 1, not 2");
}

TEST(Compare, NanAndInfinityFailWhateverTheTolerance) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    Tensor out = filled({4, 50'000}, 1.0f);
    out.elements<float>()[150'001] = bad;
    out.elements<float>()[190'000] = bad;
    out.elements<float>()[3] = 100.0f;
    const Comparison comparison = compare(out, filled({4, 50'000}, 1.0f));
    EXPECT_FALSE(comparison.within(std::numeric_limits<double>::infinity()));
    EXPECT_EQ(comparison.worst, (Shape{3, 1}));  // the first of them, in whichever thread's part
    EXPECT_FALSE(comparison.unwritten);
  }
}

// What a running sum of log decays becomes where every gate is the smallest number, as masks have it.
TEST(Compare, TheInfinityOfTheReferenceIsRight) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Tensor out = filled({4}, 1.0f), reference = filled({4}, 1.0f);
  out.elements<float>()[2] = reference.elements<float>()[2] = -kInfinity;
  EXPECT_EQ(compare(out, reference).error, 0);
  out.elements<float>()[1] = 2;
  EXPECT_EQ(compare(out, reference).worst, (Shape{1}));
  EXPECT_NEAR(compare(out, reference).error, std::sqrt(1.0 / 3), 1e-12);
  for (const float wrong : {kInfinity, std::nanf(""), -3.4e38f}) {
    out.elements<float>()[2] = wrong;
    EXPECT_FALSE(compare(out, reference).within(std::numeric_limits<double>::infinity())) << wrong;
    EXPECT_EQ(compare(out, reference).worst, (Shape{2}));
  }
}

TEST(Compare, SubnormalNumbersHaveFewerDigits) {
  const float one_more = std::nextafter(1e-40f, 1.0f);
  EXPECT_TRUE(compare(filled({100}, one_more), filled({100}, 1e-40f)).within(1e-5));
  EXPECT_FALSE(compare(filled({100}, 2e-40f), filled({100}, 1e-40f)).within(1e-5));
  EXPECT_NEAR(compare(filled({100}, 1.5e-30f), filled({100}, 1e-30f)).error, 0.5, 1e-6) << "normal numbers";
  EXPECT_FALSE(compare(filled({100}, 0.0f), filled({100}, 1.2e-38f)).within(0.9));
}

TEST(Compare, NanIsNotRightWhereTheReferenceIsNan) {
  const Tensor nan = filled({3}, std::nanf(""));
  EXPECT_FALSE(compare(nan, nan).within(1));
  EXPECT_FALSE(compare(filled({3}, 1), nan).within(1));
}

TEST(Compare, TellsUnwrittenFromNan) {
  Tensor out = filled({8}, 1.0f);
  Tensor poison(Dtype::fp32, {1});
  poison.fill_bytes(0xFF);
  out.elements<float>()[6] = poison.elements<float>()[0];
  EXPECT_EQ(describe(compare(out, filled({8}, 1.0f)), "o").find("o[6] was never written"), 0u);
  Tensor half(Dtype::bf16, {1});
  half.fill_bytes(0xFF);
  EXPECT_TRUE(compare(half.to(Dtype::fp32), filled({1}, 1.0f)).unwritten);
  out.elements<float>()[6] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(describe(compare(out, filled({8}, 1.0f)), "o"), "o[6] is nan, not 1");
}

TEST(Compare, ZeroReferenceTakesTheAbsoluteError) {
  EXPECT_EQ(compare(filled({4}, 0.0f), filled({4}, 0.0f)).error, 0);
  EXPECT_EQ(compare(filled({4}, 3.0f), filled({4}, 0.0f)).error, 6);
}

// 1e8 - 1e8 is 0 up to the rounding of 1e8, which is 8.
TEST(Compare, WhatTermsLeaveThatCancelIsMeasuredAgainstTheTerms) {
  const Tensor subtracted = filled({4}, 1e8f);
  EXPECT_EQ(compare(filled({4}, 8.0f), filled({4}, 0.0f)).error, 16);
  EXPECT_NEAR(compare(filled({4}, 8.0f), filled({4}, 0.0f), &subtracted).error, 8e-8, 1e-15);
  const Tensor small = filled({4}, 1e-8f);
  EXPECT_NEAR(compare(filled({4}, 3.0f), filled({4}, 2.0f), &small).error, 0.5, 1e-7);
  const Tensor four = filled({4}, 4.0f);
  EXPECT_NEAR(compare(filled({4}, 4.0f), filled({4}, 3.0f), &four).error, 0.2, 1e-7);  // 3, 4, 5
}

TEST(Compare, EmptyTensorsAreEqual) {
  EXPECT_TRUE(compare(filled({0, 4}, 0), filled({0, 4}, 0)).within(0));
}

// The sum of squares overflows fp32.
TEST(Compare, LargeValues) {
  const Comparison comparison = compare(filled({4}, 2e38f), filled({4}, 1e38f));
  EXPECT_NEAR(comparison.error, 1, 1e-6);
}

TEST(Compare, ShapesMustAgree) {
  EXPECT_THROW(compare(filled({4}, 0), filled({2, 2}, 0)), std::logic_error);
}

}  // namespace
}  // namespace tutorial
