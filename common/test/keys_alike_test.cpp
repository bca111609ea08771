/// @file
/// Keys that are alike, up to one key repeated, as repeated tokens give them: every stage of the delta rules, both ways, is
/// as right as rounding lets it be. Part of the tests of every chapter whose operators have a beta.
///
/// With such keys outputs are differences of numbers that are alike, so that rounding the inputs once more moves them far
/// (input_rounding.hpp). A stage may be off by as many times more than usual.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "common/test/small_problem.hpp"

namespace tutorial {
namespace {

/// Makes the keys of a problem 1 long, and of any two of them this cosine, about.
void make_alike(Problem& problem, double cosine) {
  Tensor& k = problem.inputs.at("k");
  const auto width = std::size_t(k.shape().back());
  const auto elements = k.elements<float>();
  const Random random(problem.seed, "common key");
  const auto length_of = [width](auto element) {
    double squares = 0;
    for (std::size_t d = 0; d < width; ++d) squares += element(d) * element(d);
    return std::sqrt(squares);
  };
  const double common = std::sqrt(cosine) / length_of([&](std::size_t d) { return random.normal(d); });
  for (std::size_t row = 0; row < elements.size(); row += width) {
    const double own = std::sqrt(1 - cosine) / length_of([&](std::size_t d) { return double(elements[row + d]); });
    for (std::size_t d = 0; d < width; ++d) {
      elements[row + d] = float(own * double(elements[row + d]) + common * random.normal(d));
    }
  }
  round_to_bf16(k);
}

class KeysAlikeTest : public testing::TestWithParam<std::tuple<double, float>> {};

TEST_P(KeysAlikeTest, EveryStageIsAsRightAsRoundingLets) {
  const auto& [cosine, beta] = GetParam();
  const Chapter contents = chapter();
  auto number = std::uint64_t(std::lround(100 * cosine) + std::lround(6 * beta));
  int ran = 0;
  for (const Operator& definition : contents.operators()) {
    if (!has_input(definition, "k") || !has_input(definition, "beta") || shares_heads(definition)) continue;
    for (const auto& [L, seed] : small_draws(++number)) {
      Problem problem = small_problem(definition, seed, L);
      make_alike(problem, cosine);
      fill(problem.inputs.at("beta"), beta);
      const auto g = problem.inputs.find("g");
      if (g != problem.inputs.end() && seed % 2 == 1) fill(g->second, 0);  // gates that forget hide what keys do
      SCOPED_TRACE(definition.label() + ", L = " + std::to_string(L) + ", seed " + std::to_string(seed));
      References references(definition, problem);
      for (const Stage& stage : definition.stages()) {
        if (!why_not(definition, stage, problem).empty()) continue;
        const double worst = error_in_tolerances(definition, stage, problem, references.of(stage));
        ++ran;
        EXPECT_LE(worst, 1) << stage.name << " is off by that many times what it may be";
      }
    }
  }
  EXPECT_GT(ran, 0);
}

INSTANTIATE_TEST_SUITE_P(CosinesAndBetas, KeysAlikeTest,
                         testing::Combine(testing::Values(1, 0.99, 0.9), testing::Values(0.0f, 0.5f, 1.0f)),
                         [](const auto& info) {
                           return "Cosine" + std::to_string(int(100 * std::get<0>(info.param))) + "Beta" +
                                  std::to_string(int(10 * std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace tutorial
