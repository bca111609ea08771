/// @file
/// What the delta rule is for: a state that stores a value under a key, is overwritten under the same key, and returns
/// the new value.

#include <array>

#include "05_deltanet_wy/test/stages.hpp"

namespace tutorial {
namespace {

constexpr std::int64_t kWidth = 16;
using Row = std::array<float, kWidth>;

// Of length 1, orthogonal to each other, and exact in bf16.
constexpr Row kCapital{0.5f, 0.5f, 0.5f, 0.5f};
constexpr Row kRiver{0.5f, -0.5f, 0.5f, -0.5f};

constexpr Row kBonn{1, 2, 3, 4}, kBerlin{-8, 7, -6, 5}, kRhine{16, 32, 0, 1};

/// One position: what is written under a key, and then what the state answers to a query.
struct Step {
  Row key, value;
  float beta;
  Row query, answer;
};

void expect_answers(const std::vector<Step>& steps) {
  const auto L = std::int64_t(steps.size());
  Problem problem = drawn(1, 1, L, kWidth, kWidth);
  problem.inputs.erase("initial_state");
  problem.scale = 1;
  const auto set = [&](const char* name, auto row_of) {
    for (std::size_t t = 0; t < steps.size(); ++t) {
      std::ranges::copy(row_of(steps[t]),
                        problem.inputs.at(name).elements<float>().begin() + std::ptrdiff_t(t) * kWidth);
    }
  };
  set("k", [](const Step& step) { return step.key; });
  set("v", [](const Step& step) { return step.value; });
  set("q", [](const Step& step) { return step.query; });
  for (std::size_t t = 0; t < steps.size(); ++t) problem.inputs.at("beta").elements<float>()[t] = steps[t].beta;

  for (const Stage& stage : delta_rule_operator().stages()) {
    SCOPED_TRACE(stage.name);
    ASSERT_EQ(why_not(delta_rule_operator(), stage, problem), "");
    const Outputs outputs = evaluate(delta_rule_operator(), stage, problem);
    for (std::size_t t = 0; t < steps.size(); ++t) {
      const auto o = outputs.at("o").elements<float>().subspan(t * kWidth, kWidth);
      for (std::size_t j = 0; j < kWidth; ++j) EXPECT_NEAR(o[j], steps[t].answer[j], 1e-5) << "position " << t;
    }
  }
}

TEST(OverwriteTest, TheSecondValueReplacesTheFirst) {
  expect_answers({{kCapital, kBonn, 1, kCapital, kBonn},
                  {kRiver, kRhine, 1, kRiver, kRhine},
                  {kCapital, kBerlin, 1, kCapital, kBerlin},  // chapter 02's state would answer the sum of both
                  {kRiver, kRhine, 0, kRiver, kRhine}});      // what is under other keys has stayed
}

TEST(OverwriteTest, BetaIsHowFarItGoes) {
  Row halfway{};
  for (std::size_t j = 0; j < kWidth; ++j) halfway[j] = (kBonn[j] + kBerlin[j]) / 2;
  expect_answers({{kCapital, kBonn, 1, kCapital, kBonn}, {kCapital, kBerlin, 0.5f, kCapital, halfway}});
}

TEST(OverwriteTest, AlsoManyChunksLater) {
  std::vector<Step> steps{{kCapital, kBonn, 1, kCapital, kBonn}};
  for (int t = 0; t < 150; ++t) steps.push_back({kRiver, kRhine, 1, kCapital, kBonn});
  steps.push_back({kCapital, kBerlin, 1, kCapital, kBerlin});
  expect_answers(steps);
}

}  // namespace
}  // namespace tutorial
