#pragma once
/// @file
/// How the random inputs of operators are drawn.

#include <functional>
#include <string>

#include "common/chapter/sizes.hpp"
#include "common/random.hpp"
#include "common/tensor.hpp"

namespace tutorial {

/// Fills a tensor of the input's type and shape. Elements are drawn in parallel.
using Draw = std::function<void(const Random&, const Sizes&, Tensor&)>;

/// deviation * standard normal.
Draw normal(double deviation = 1);
/// Uniform in (low, high).
Draw uniform(double low, double high);
/// log(sigmoid(standard normal)) / divisor: the logarithm of a gate, negative.
Draw logsigmoid(double divisor = 1);
/// Standard normal, then each row of the innermost dimension scaled to length 1.
Draw unit_rows();
/// Whole numbers, uniform in low..(the size named by `symbol`), both included.
Draw integers(std::int64_t low, std::string symbol);

}  // namespace tutorial
