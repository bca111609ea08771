#pragma once
/// @file
/// How much of an output hangs on the last digits of the inputs.

#include <algorithm>
#include <limits>
#include <string>

#include "common/chapter/operator.hpp"
#include "common/chapter/problem.hpp"
#include "common/chapter/stage_tensors.hpp"
#include "common/dtype.hpp"

namespace tutorial {

/// The name under which amplification() has that of an output for stages of a type.
inline std::string amplification_of(const std::string& output, Dtype dtype) {
  return output + "_amplification_" + std::string(name_of(dtype));
}

/// For each output one number: how far the reference's output moves if the inputs are rounded once more, as a multiple of
/// what a product of three factors moves if each of them is rounded.
///
/// Rounding is drawn: each number that stages of this type take in 16 bits moves by up to half a unit of its last bit,
/// uniformly, and each other number by as much of fp32. The number is the largest of three draws. A product's relative
/// error has a root mean square of 0.74 u, where u is 2^-8 for bf16: half a unit of the last bit of x = m 2^e is u / m
/// of x, uniform rounding has 1 / sqrt(3) of it, the mean of 1 / m^2 is 0.54 where log m is uniform, and sqrt(3) is for
/// three factors.
///
/// A number above 1 is a property of the problem, such as keys that are alike: its outputs are differences of numbers
/// that are alike. A stage rounds what it computes, beside its inputs, so its tolerance grows by as much.
Outputs amplification(const Operator& definition, const Problem& problem, Dtype dtype);

/// How many times its tolerance a stage may be off at most: what it says of keys that are alike, Stage::most_where_alike.
/// That counts only steps that take something from the old state, and add nothing to its size: where beta |k|^2 is at most
/// 1, but for the rounding of k. Otherwise there is no such limit.
///
/// A sum (Output::is_sum), such as dg of one gate for a whole state, is relative to its own size, with strong gates as with any.
/// Where keys are alike, nothing may be left of it. Then a stage may be off by Stage::most_of_terms times its tolerance of
/// the size of the terms.
/// @param reference what evaluate_reference() gives
double most_amplified(const Stage& stage, const Problem& problem, const std::string& output, const Outputs& reference);

/// The tolerance of a stage for an output of this problem, given what it is where nothing is amplified.
/// @param most how many times that at most
inline double amplified(double tolerance, const std::string& output, Dtype dtype, const Outputs& amplification,
                        double most = std::numeric_limits<double>::infinity()) {
  const double times = amplification.at(amplification_of(output, dtype)).value(0);
  return tolerance * std::max(1.0, std::min(times, most));
}

}  // namespace tutorial
