#include "common/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "common/chapter/draw.hpp"
#include "common/tensor.hpp"

namespace tutorial {
namespace {

constexpr std::int64_t kCount = 200'000;

Tensor drawn(const Draw& draw, std::uint64_t seed = 7, const std::string& name = "x", Shape shape = {kCount}) {
  Tensor tensor(Dtype::fp32, std::move(shape));
  draw(Random(seed, name), {}, tensor);
  return tensor;
}

struct Moments {
  double mean = 0, deviation = 0, skewness = 0, kurtosis = 0;
};

Moments moments_of(const Tensor& tensor) {
  Moments m;
  const auto n = static_cast<double>(tensor.size());
  for (const float x : tensor.elements<float>()) m.mean += x / n;
  for (const float x : tensor.elements<float>()) m.deviation += std::pow(x - m.mean, 2) / n;
  m.deviation = std::sqrt(m.deviation);
  for (const float x : tensor.elements<float>()) {
    m.skewness += std::pow((x - m.mean) / m.deviation, 3) / n;
    m.kurtosis += std::pow((x - m.mean) / m.deviation, 4) / n;
  }
  return m;
}

// The largest distance between the distribution of the numbers and the one that they should have; about 1.4 / sqrt(n)
// is exceeded by one sample in thirty thousand.
template <class F>
double kolmogorov_distance(const Tensor& tensor, F distribution) {
  std::vector<float> sorted(tensor.elements<float>().begin(), tensor.elements<float>().end());
  std::sort(sorted.begin(), sorted.end());
  double distance = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const double below = static_cast<double>(i) / static_cast<double>(sorted.size());
    distance = std::max(distance, std::abs(distribution(sorted[i]) - below));
  }
  return distance;
}

TEST(Random, NormalIsNormal) {
  const Tensor tensor = drawn(normal());
  const Moments m = moments_of(tensor);
  EXPECT_NEAR(m.mean, 0, 0.01);
  EXPECT_NEAR(m.deviation, 1, 0.01);
  EXPECT_NEAR(m.skewness, 0, 0.03);
  EXPECT_NEAR(m.kurtosis, 3, 0.06);
  EXPECT_LT(kolmogorov_distance(tensor, [](double x) { return std::erfc(-x / std::sqrt(2)) / 2; }),
            2.3 / std::sqrt(kCount));
}

TEST(Random, UniformIsUniform) {
  const Tensor tensor = drawn(uniform(-1, 3));
  const auto values = tensor.elements<float>();
  EXPECT_GE(*std::min_element(values.begin(), values.end()), -1);
  EXPECT_LE(*std::max_element(values.begin(), values.end()), 3);
  EXPECT_LT(kolmogorov_distance(tensor, [](double x) { return (x + 1) / 4; }), 2.3 / std::sqrt(kCount));
}

// Neighbours, numbers two apart (one of each Box-Muller pair), tensors of neighbouring seeds and of different names.
TEST(Random, NumbersAreIndependent) {
  const Tensor a = drawn(normal());
  const auto correlation = [&](const Tensor& b, std::int64_t lag) {
    double sum = 0;
    for (std::int64_t i = 0; i + lag < kCount; ++i) sum += a.elements<float>()[i] * b.elements<float>()[i + lag];
    return std::abs(sum) / kCount;
  };
  for (const std::int64_t lag : {1, 2, 3, 64}) EXPECT_LT(correlation(a, lag), 0.01) << lag;
  EXPECT_LT(correlation(drawn(normal(), 8), 0), 0.01);
  EXPECT_LT(correlation(drawn(normal(), 7, "y"), 0), 0.01);
}

TEST(Random, LogsigmoidIsNegativeWithTheRightMedian) {
  const Tensor tensor = drawn(logsigmoid(16));
  std::vector<float> values(tensor.elements<float>().begin(), tensor.elements<float>().end());
  EXPECT_LT(*std::max_element(values.begin(), values.end()), 0);
  std::nth_element(values.begin(), values.begin() + kCount / 2, values.end());
  EXPECT_NEAR(values[kCount / 2], std::log(0.5) / 16, 1e-3);
}

TEST(Random, GatesByName) {
  // The medians are those of x = 0.
  for (const auto& [name, median] : {std::pair{"usual", -std::log1p(1.0)},
                                     {"weak", -std::log1p(std::exp(-5.0))},
                                     {"bounded", -2.5},
                                     {"open", 0.0}}) {
    const Tensor tensor = drawn(gate_draws().at(name));
    std::vector<float> values(tensor.elements<float>().begin(), tensor.elements<float>().end());
    EXPECT_LE(*std::max_element(values.begin(), values.end()), 0) << name;
    EXPECT_GE(*std::min_element(values.begin(), values.end()), -10) << name;
    std::nth_element(values.begin(), values.begin() + kCount / 2, values.end());
    EXPECT_NEAR(values[kCount / 2], median, 0.02) << name;
  }
  EXPECT_EQ(gate_draws().size(), 4u);
}

TEST(Random, UnitRowsHaveLengthOne) {
  const Tensor tensor = drawn(unit_rows(), 7, "k", {3, 50, 40});
  for (std::int64_t row = 0; row < 150; ++row) {
    double squares = 0;
    for (std::int64_t i = 0; i < 40; ++i) squares += std::pow(tensor.value(row * 40 + i), 2);
    EXPECT_NEAR(squares, 1, 1e-5);
  }
}

TEST(Random, IntegersReachBothEnds) {
  Tensor tensor(Dtype::int32, {2000});
  integers(1, "L")(Random(7, "n"), {{"L", 5}}, tensor);
  std::set<int> seen(tensor.elements<std::int32_t>().begin(), tensor.elements<std::int32_t>().end());
  EXPECT_EQ(seen, (std::set<int>{1, 2, 3, 4, 5}));
}

TEST(Random, SameSeedSameNumbers) {
  const Tensor a = drawn(normal());
  const Tensor b = drawn(normal());
  EXPECT_TRUE(std::equal(a.elements<float>().begin(), a.elements<float>().end(), b.elements<float>().begin()));
}

// The same on every machine: these numbers come from another implementation, in Python.
TEST(Random, KnownNumbers) {
  const Random random(1, "q");
  EXPECT_EQ(random.bits(0), 0x9478287259b9ff8eu);
  EXPECT_EQ(random.bits(1), 0xe81a49d693923446u);
  EXPECT_EQ(random.bits(1'000'000), 0x3c2929105f76e4f2u);
  EXPECT_DOUBLE_EQ(random.uniform(2), 0.9634285792261701);
  EXPECT_NEAR(random.normal(0), 0.8693783698353349, 1e-14);
  EXPECT_NEAR(random.normal(1), -0.5777359504966891, 1e-14);
}

}  // namespace
}  // namespace tutorial
