#include "common/tensor.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>

#include "common/error.hpp"

namespace tutorial {
namespace {

TEST(Tensor, CountsElements) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({2, 3, 4}), 24);
  EXPECT_EQ(element_count({2, 0, 4}), 0);
  EXPECT_THROW(element_count({2, -3}), UsageError);
  EXPECT_THROW(element_count({std::int64_t{1} << 32, std::int64_t{1} << 32}), UsageError);
  EXPECT_THROW(element_count({std::int64_t{1} << 61}), UsageError);  // 2^64 bytes of fp64
  EXPECT_THROW(element_count({0, std::int64_t{1} << 40, std::int64_t{1} << 40}), UsageError);
}

TEST(Tensor, FindsTheIndexOfAnElement) {
  EXPECT_EQ(index_of({2, 3, 4}, 0), (Shape{0, 0, 0}));
  EXPECT_EQ(index_of({2, 3, 4}, 23), (Shape{1, 2, 3}));
  EXPECT_EQ(index_of({2, 3, 4}, 17), (Shape{1, 1, 1}));
  EXPECT_EQ(to_string(Shape{2, 3}), "[2, 3]");
  EXPECT_EQ(to_string(Shape{}), "[]");
}

TEST(Tensor, ConvertsBetweenFloatingPointTypes) {
  Tensor tensor(Dtype::fp32, {5});
  const float values[] = {1.0f, -0.333333343f, 65520.0f, 1e-7f, 3.4e38f};
  std::copy(std::begin(values), std::end(values), tensor.elements<float>().begin());

  const Tensor as_double = tensor.to(Dtype::fp64);
  const Tensor as_bf16 = tensor.to(Dtype::bf16);
  const Tensor as_fp16 = tensor.to(Dtype::fp16);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(as_double.value(i), values[i]);
  EXPECT_EQ(as_bf16.value(0), 1.0);
  EXPECT_EQ(as_bf16.value(1), -0.333984375);
  EXPECT_EQ(as_fp16.value(1), -0.333251953125);
  EXPECT_EQ(as_fp16.value(2), std::numeric_limits<double>::infinity());
  EXPECT_EQ(as_fp16.value(3), 2 * 0x1p-24);
  EXPECT_EQ(as_bf16.to(Dtype::fp32).elements<float>()[1], -0.333984375f);
  EXPECT_EQ(as_double.to(Dtype::fp32).elements<float>()[4], 3.4e38f);

  round_to_bf16(tensor);
  EXPECT_EQ(tensor.value(1), -0.333984375);
}

TEST(Tensor, ConvertsBetweenIntegerTypes) {
  Tensor tensor(Dtype::int64, {2});
  tensor.elements<std::int64_t>()[0] = -7;
  tensor.elements<std::int64_t>()[1] = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(tensor.to(Dtype::int32).elements<std::int32_t>()[0], -7);
  EXPECT_EQ(tensor.to(Dtype::int32).to(Dtype::int64).value(1), 2147483647.0);
  tensor.elements<std::int64_t>()[1] += 1;
  EXPECT_THROW(tensor.to(Dtype::int32), UsageError);
  EXPECT_THROW(tensor.to(Dtype::fp32), std::logic_error);
}

TEST(Tensor, RefusesTheWrongType) {
  Tensor tensor(Dtype::fp32, {2});
  EXPECT_THROW(tensor.elements<double>(), std::logic_error);
}

TEST(Tensor, PoisonIsNan) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp64, Dtype::bf16, Dtype::fp16}) {
    Tensor tensor(dtype, {3});
    tensor.fill_bytes(0xFF);
    EXPECT_TRUE(std::isnan(tensor.value(2))) << name_of(dtype);
  }
}

TEST(Tensor, IsAligned) {
  for (int i = 1; i < 10; ++i) {
    const Tensor tensor(Dtype::bf16, {i});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.raw()) % 64, 0u);
  }
}

TEST(Tensor, TwoDimensionsChangePlaces) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
    Tensor tensor(Dtype::fp32, {2, 3, 4, 5});
    for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.elements<float>()[i] = static_cast<float>(i);
    const Tensor swapped = swap_second_and_third(tensor.to(dtype));
    EXPECT_EQ(swapped.shape(), (Shape{2, 4, 3, 5}));
    EXPECT_EQ(swapped.dtype(), dtype);
    for (std::int64_t i = 0; i < swapped.size(); ++i) {
      const Shape at = index_of(swapped.shape(), i);
      ASSERT_EQ(swapped.value(i), static_cast<double>(((at[0] * 3 + at[2]) * 4 + at[1]) * 5 + at[3]));
    }
  }
  EXPECT_EQ(swap_second_and_third(Tensor(Dtype::fp32, {2, 0, 4})).shape(), (Shape{2, 4, 0}));
}

// Large enough for several threads.
TEST(Tensor, ConvertsManyElements) {
  Tensor tensor(Dtype::fp32, {100'003});
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.elements<float>()[i] = static_cast<float>(i % 256);
  const Tensor back = tensor.to(Dtype::bf16).to(Dtype::fp64);
  for (std::int64_t i = 0; i < tensor.size(); ++i) ASSERT_EQ(back.value(i), static_cast<double>(i % 256));
}

}  // namespace
}  // namespace tutorial
