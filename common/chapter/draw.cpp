#include "common/chapter/draw.hpp"

#include <algorithm>
#include <cmath>

#include "common/parallel.hpp"

namespace tutorial {
namespace {

// Element i becomes value(random, i).
template <class F>
Draw each(F value) {
  return [value](const Random& random, const Sizes&, Tensor& tensor) {
    const auto elements = tensor.elements<float>();
    parallel_for(tensor.size(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        elements[i] = static_cast<float>(value(random, static_cast<std::uint64_t>(i)));
      }
    });
  };
}

}  // namespace

Draw normal(double deviation) {
  return each([=](const Random& random, std::uint64_t i) { return deviation * random.normal(i); });
}

Draw uniform(double low, double high) {
  return each([=](const Random& random, std::uint64_t i) { return low + (high - low) * random.uniform(i); });
}

Draw logsigmoid(double divisor) {
  return each(
      [=](const Random& random, std::uint64_t i) { return -std::log1p(std::exp(-random.normal(i))) / divisor; });
}

const std::map<std::string, Draw>& gate_draws() {
  static const std::map<std::string, Draw> draws{
      {"usual", logsigmoid()},
      {"weak",
       each([](const Random& random, std::uint64_t i) { return -std::log1p(std::exp(-random.normal(i) - 5)); })},
      {"bounded", each([](const Random& random, std::uint64_t i) { return -5 / (1 + std::exp(-random.normal(i))); })},
      {"open", each([](const Random&, std::uint64_t) { return 0.0; })}};
  return draws;
}

Draw unit_rows() {
  return [](const Random& random, const Sizes&, Tensor& tensor) {
    const auto elements = tensor.elements<float>();
    const std::int64_t width = tensor.shape().back();
    if (width == 0) return;
    parallel_for(
        tensor.size() / width,
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t row = begin; row < end; ++row) {
            double squares = 0;
            for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
              const double x = random.normal(static_cast<std::uint64_t>(i));
              elements[i] = static_cast<float>(x);
              squares += x * x;
            }
            const double scale = 1 / std::sqrt(squares);
            for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
              elements[i] = static_cast<float>(scale * elements[i]);
            }
          }
        },
        64);
  };
}

Draw integers(std::int64_t low, std::string symbol) {
  return [=](const Random& random, const Sizes& sizes, Tensor& tensor) {
    const std::int64_t choices = sizes.at(symbol) - low + 1;
    const auto elements = tensor.elements<std::int32_t>();
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      const auto chosen =
          static_cast<std::int64_t>(random.uniform(static_cast<std::uint64_t>(i)) * static_cast<double>(choices));
      elements[i] = static_cast<std::int32_t>(low + chosen);
    }
  };
}

Draw cuts(std::string symbol) {
  return [=](const Random& random, const Sizes& sizes, Tensor& tensor) {
    integers(0, symbol)(random, sizes, tensor);
    const auto elements = tensor.elements<std::int32_t>();
    elements.front() = 0;
    elements.back() = static_cast<std::int32_t>(sizes.at(symbol));
    std::sort(elements.begin(), elements.end());
  };
}

}  // namespace tutorial
