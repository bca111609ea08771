#pragma once
/// @file
/// How the random inputs of operators are drawn.

#include <functional>
#include <map>
#include <string>

#include "common/chapter/sizes.hpp"
#include "common/random.hpp"
#include "common/tensor.hpp"

namespace tutorial {

/// Fills a tensor of the input's type and shape: fp32, and int32 for integers(); std::logic_error for another one.
/// Elements are drawn in parallel.
using Draw = std::function<void(const Random&, const Sizes&, Tensor&)>;

/// deviation * standard normal.
Draw normal(double deviation = 1);
/// Uniform in (low, high).
Draw uniform(double low, double high);
/// log(sigmoid(standard normal)) / divisor: the natural logarithm of a gate, negative.
Draw logsigmoid(double divisor = 1);
/// How the logarithms of gates are drawn under the names of --gates, from a standard normal x: `usual` logsigmoid(x),
/// `weak` logsigmoid(x + 5), `bounded` -5 sigmoid(x); and `open`, gates of 1 that forget nothing.
const std::map<std::string, Draw>& gate_draws();
/// Standard normal, then each row of the innermost dimension scaled to length 1.
Draw unit_rows();
/// Whole numbers, uniform in low..(the size named by `symbol`), both included. Drawing throws std::out_of_range where
/// the problem has no such size.
Draw integers(std::int64_t low, std::string symbol);
/// 0, whole numbers from 0 to the size named by `symbol` in ascending order, and this size: where pieces begin that it is
/// cut into at random. Drawing throws as that of integers().
Draw cuts(std::string symbol);

}  // namespace tutorial
