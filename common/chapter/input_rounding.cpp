#include "common/chapter/input_rounding.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/chapter/evaluate.hpp"
#include "common/random.hpp"

namespace tutorial {
namespace {

constexpr int kBits = 24;  // that are significant in fp32

/// Those that stages of this type get of what they take in 16 bits, bf16.
int bits_of(Dtype dtype) {
  return size_of(dtype) == 2 ? 8 : kBits;
}

/// x after a step of up to half a unit of its last bit. @param step in (-1, 1)
float moved(float x, int bits, double step) {
  if (x == 0 || !std::isfinite(x)) return x;
  return static_cast<float>(double(x) + std::ldexp(step, std::ilogb(x) - bits));
}

/// The problem as stages of this type get it, all tensors in fp32.
Problem rounded(const Operator& definition, const Problem& problem, Dtype dtype) {
  Problem result;
  result.sizes = problem.sizes;
  result.scale = problem.scale;
  result.parameters = problem.parameters;
  for (const Input& input : definition.inputs()) {
    const auto found = problem.inputs.find(input.name);
    if (found == problem.inputs.end()) continue;
    const bool in_16_bits = input.dtype == Dtype::fp32 && input.bf16 && size_of(dtype) == 2;
    result.inputs.emplace(input.name,
                          in_16_bits ? found->second.to(dtype).to(Dtype::fp32) : found->second.to(input.dtype));
  }
  return result;
}

/// Whether no step of the problem stretches the state or turns the sign of a part of it.
bool only_takes(const Problem& problem) {
  const auto k = problem.inputs.find("k"), beta = problem.inputs.find("beta");
  if (k == problem.inputs.end() || beta == problem.inputs.end()) return true;
  double length = 0, most = 0;  // the largest |k|^2, and the largest beta
  const auto elements = k->second.elements<float>();
  const auto width = std::size_t(k->second.shape().back());
  for (std::size_t row = 0; row < elements.size(); row += width) {
    double squares = 0;
    for (std::size_t d = row; d < row + width; ++d) squares += double(elements[d]) * double(elements[d]);
    length = std::max(length, squares);
  }
  if (problem.parameters.contains("key_eps")) length = 1;  // keys are normalised
  for (const float x : beta->second.elements<float>()) most = std::max(most, double(x));
  return most * length <= 1 + 0x1p-6;
}

/// The root of the sum of the squares of the elements.
double size_of_all(const Tensor& x) {
  double squares = 0;
  for (const float element : x.elements<float>()) squares += double(element) * double(element);
  return std::sqrt(squares);
}

}  // namespace

double most_amplified(const Stage& stage, const Problem& problem, const std::string& output, const Outputs& reference) {
  if (stage.most_where_alike == 0 || !only_takes(problem)) return std::numeric_limits<double>::infinity();
  const auto terms = reference.find(terms_of(output));
  if (terms == reference.end()) return stage.most_where_alike;
  // The error of an output that is 0 is relative to 1: see Comparison::error.
  const double size = size_of_all(reference.at(output)), of_terms = size_of_all(terms->second);
  return std::max(stage.most_where_alike, stage.most_of_terms * of_terms / (size > 0 ? size : 1));
}

Outputs amplification(const Operator& definition, const Problem& problem, Dtype dtype) {
  constexpr std::uint64_t kDraws = 3;
  const int bits = bits_of(dtype);
  const double of_a_product = std::ldexp(0.74, -bits);
  const Outputs exact = evaluate_reference(definition, rounded(definition, problem, dtype));
  Outputs result;
  for (const Output& output : definition.outputs()) {
    Tensor one(Dtype::fp32, {});
    one.elements<float>()[0] = 0;
    result.emplace(amplification_of(output.name, dtype), std::move(one));
  }
  for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
    Problem other = rounded(definition, problem, dtype);
    for (const Input& input : definition.inputs()) {
      const auto found = other.inputs.find(input.name);
      if (found == other.inputs.end() || input.dtype != Dtype::fp32) continue;
      const Random random(draw, input.name);
      const auto elements = found->second.elements<float>();
      for (std::size_t i = 0; i < elements.size(); ++i) {
        elements[i] = moved(elements[i], input.bf16 ? bits : kBits, 2 * random.uniform(i) - 1);
      }
    }
    const Outputs outputs = evaluate_reference(definition, other);
    for (const Output& output : definition.outputs()) {
      const double error = compare(output.name, outputs.at(output.name), exact).error;
      float& most = result.at(amplification_of(output.name, dtype)).elements<float>()[0];
      most = std::max(most, float(error / of_a_product));  // not where it is NaN
    }
  }
  return result;
}

}  // namespace tutorial
