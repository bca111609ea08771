/// @file
/// Products of many matrices: beta of 0 and 1, keys that are alike, long sequences.

#include <algorithm>
#include <cmath>

#include "06_scan/test/states.hpp"
#include "common/random.hpp"

namespace tutorial {
namespace {

Problem drawn_delta(std::int64_t L, std::int64_t Dk, std::int64_t Dv) {
  return drawn_states(state_operator("delta_rule"), 1, 2, L, Dk, Dv);
}

void fill(Problem& problem, const char* name, float value) {
  for (float& x : problem.inputs.at(name).elements<float>()) x = value;
}

/// Makes all keys have this cosine with each other, about, and length 1.
void correlate(Problem& problem, double cosine) {
  Tensor& k = problem.inputs.at("k");
  const auto width = std::size_t(k.shape().back());
  const auto elements = k.elements<float>();
  for (std::size_t row = 0; row < elements.size(); row += width) {
    double squares = 0;
    for (float& x : elements.subspan(row, width)) {
      x = float(std::sqrt(1 - cosine) * double(x) + std::sqrt(cosine / double(width)));
      squares += double(x) * double(x);
    }
    for (float& x : elements.subspan(row, width)) x = float(double(x) / std::sqrt(squares));
  }
}

// Each A is a projection, and so is none of their products.
TEST(DeltaRuleNumbersTest, BetaOfOne) {
  Problem problem = drawn_delta(300, 24, 16);
  fill(problem, "beta", 1);
  expect_scans_match(state_operator("delta_rule"), problem);
}

// Nothing is written: all queries read the initial state, and it stays, through all products of identities, to the last
// bit.
TEST(DeltaRuleNumbersTest, BetaOfZeroWritesNothing) {
  const Operator& definition = state_operator("delta_rule");
  Problem problem = drawn_delta(300, 24, 16);
  fill(problem, "beta", 0);
  expect_scans_match(definition, problem);
  const Outputs outputs = evaluate(definition, find_stage(definition, "scan_affine"), problem);
  EXPECT_TRUE(std::ranges::equal(outputs.at("final_state").elements<float>(),
                                 problem.inputs.at("initial_state").elements<float>()));
}

TEST(DeltaRuleNumbersTest, BetaOfZeroOrOne) {
  Problem problem = drawn_delta(300, 24, 16);
  const Random random(1, "pattern");
  const auto beta = problem.inputs.at("beta").elements<float>();
  for (std::size_t i = 0; i < beta.size(); ++i) beta[i] = float(random.uniform(i) < 0.5);
  expect_scans_match(state_operator("delta_rule"), problem);
}

TEST(DeltaRuleNumbersTest, KeysThatAreAlike) {
  for (const double cosine : {0.5, 0.9, 1.0}) {
    for (const float beta : {0.5f, 0.99f, 1.0f}) {
      SCOPED_TRACE("cosine " + std::to_string(cosine) + ", beta " + std::to_string(beta));
      Problem problem = drawn_delta(200, 24, 16);
      correlate(problem, cosine);
      fill(problem, "beta", beta);
      expect_scans_match(state_operator("delta_rule"), problem);
    }
  }
}

// With keys of length 1 no product of the A is longer than 1, however many there are.
TEST(DeltaRuleNumbersTest, LongSequences) {
  Problem problem = drawn_delta(4096, 16, 8);
  expect_scans_match(state_operator("delta_rule"), problem);
  fill(problem, "beta", 0.01f);  // so that something is left of the initial state for a while
  expect_scans_match(state_operator("delta_rule"), problem);
}

}  // namespace
}  // namespace tutorial
