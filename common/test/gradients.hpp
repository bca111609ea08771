#pragma once
/// @file
/// Whether the double reference of an operator's `backward` gives gradients: central differences of the operator.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/chapter/evaluate.hpp"
#include "common/random.hpp"

namespace tutorial {

/// Packed tensors in double, by name. One that is absent is not there.
using Doubles = std::map<std::string, std::vector<double>, std::less<>>;

/// An operator, written down for a test: from its inputs to its outputs, of the sizes that the test has chosen.
using Definition = std::function<Doubles(const Doubles& inputs)>;

/// Expects each gradient dX that the reference gives to be that of the sum of <dO, O> over all outputs O whose gradient
/// dO the problem has: for some random elements of X, within 1e-6 of the element, or of the gradient's root mean square
/// where the element is smaller. The differences are of fourth order, so their own error is below 1e-9.
/// @param definition the operator in double; its outputs are needed for which the problem has gradients
inline void expect_gradients(const Operator& backward, const Problem& problem, const Definition& definition,
                             int elements = 16) {
  Doubles inputs;
  for (const auto& [name, tensor] : problem.inputs) {
    if (tensor.dtype() != Dtype::fp32) continue;
    const auto values = tensor.elements<float>();
    inputs[name].assign(values.begin(), values.end());
  }
  const auto loss = [&] {
    double sum = 0;
    for (const auto& [name, output] : definition(inputs)) {
      const auto gradient = inputs.find("d" + name);
      if (gradient == inputs.end()) continue;
      for (std::size_t i = 0; i < output.size(); ++i) sum += gradient->second[i] * output[i];
    }
    return sum;
  };
  const Outputs gradients = evaluate_reference(backward, problem);
  for (const Output& spec : backward.outputs()) {
    const auto input = inputs.find(spec.name.substr(1));
    if (input == inputs.end()) continue;  // it is absent, that is zero
    const auto gradient = gradients.at(spec.name).elements<float>();
    double squares = 0;
    for (const float x : gradient) squares += double(x) * double(x);
    const double mean = std::sqrt(squares / double(gradient.size()));
    EXPECT_GT(mean, 0) << spec.name << ": zeros test nothing";
    const Random random(problem.seed, "elements of " + spec.name);
    for (int n = 0; n < elements; ++n) {
      const auto i = std::size_t(random.uniform(std::uint64_t(n)) * double(gradient.size()));
      double& element = input->second[i];
      const double before = element;
      const auto at = [&](double offset) {
        element = before + offset;
        return loss();
      };
      constexpr double h = 1e-3;
      const double difference = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
      element = before;
      const double expected = double(gradient[i]);
      EXPECT_NEAR(difference, expected, 1e-6 * std::max(std::abs(expected), mean)) << spec.name << ", element " << i;
    }
  }
}

}  // namespace tutorial
