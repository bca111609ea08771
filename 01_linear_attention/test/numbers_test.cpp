/// @file
/// Numbers that could go wrong: tiny features, no keys, and what the operators must be equal to by hand.

#include <algorithm>
#include <cmath>

#include "01_linear_attention/test/stages.hpp"
#include "common/feature_map.hpp"
#include "common/test/peak_memory.hpp"

namespace tutorial {
namespace {

Tensor filled(Shape shape, float value) {
  Tensor tensor(Dtype::fp32, std::move(shape));
  for (float& x : tensor.elements<float>()) x = value;
  return tensor;
}

TEST(FeatureMap, KeepsItsDigitsBelowZero) {
  EXPECT_FLOAT_EQ(phi(2.0f), 3.0f);
  EXPECT_FLOAT_EQ(phi(0.0f), 1.0f);
  EXPECT_FLOAT_EQ(phi(-12.0f), float(std::exp(-12.0)));
  EXPECT_GT(phi(-80.0f), 0.0f);
}

TEST(NumbersTest, TinyFeaturesAgreeWithTheReference) {
  const Operator& definition = find_operator("causal_attention");
  expect_stages_match(
      definition, make_problem(definition, {.input_file = GOLDEN_FOLDER "/linear_attention_causal_tiny.safetensors"}));
}

TEST(NumbersTest, OnesCountTheKeys) {  // q = k = v = 1: o_t = Dk (t + 1)
  const Operator& definition = find_operator("causal_dot_product");
  Problem problem = make_problem(definition, {.sizes = {{"B", 1}, {"H", 2}, {"L", 70}, {"Dk", 5}, {"Dv", 3}}});
  for (const char* name : {"q", "k", "v"}) problem.inputs.at(name) = filled(problem.inputs.at(name).shape(), 1);
  for (const Stage& stage : definition.stages()) {
    SCOPED_TRACE(stage.name);
    const Outputs outputs = evaluate(definition, stage, problem);
    const auto o = outputs.at("o").elements<float>();
    for (std::size_t i = 0; i < o.size(); ++i) ASSERT_EQ(o[i], float(5 * (i / 3 % 70 + 1))) << i;
  }
}

TEST(NumbersTest, NormalisedWeightsOfEqualValuesGiveTheValue) {
  for (const char* name : {"causal_attention", "bidirectional_attention"}) {
    const Operator& definition = find_operator(name);
    Problem problem =
        make_problem(definition, {.sizes = {{"B", 2}, {"H", 1}, {"L", 40}, {"Dk", 16}, {"Dv", 4}}, .seed = 7});
    problem.inputs.at("v") = filled(problem.inputs.at("v").shape(), 2.5f);
    for (const Stage& stage : definition.stages()) {
      SCOPED_TRACE(definition.name() + " " + stage.name);
      const Outputs outputs = evaluate(definition, stage, problem);
      for (const float o : outputs.at("o").elements<float>()) ASSERT_NEAR(o, 2.5f, 1e-5f);
    }
  }
}

TEST(NumbersTest, KeyLengths) {
  for (const char* name : {"causal_attention", "bidirectional_attention"}) {
    const Operator& definition = find_operator(name);
    Problem problem =
        make_problem(definition, {.sizes = {{"B", 4}, {"H", 2}, {"L", 45}, {"Dk", 20}, {"Dv", 12}}, .seed = 3});
    const auto lengths = problem.inputs.at("key_lengths").elements<std::int32_t>();
    lengths[0] = 0;  // no key at all: zero divided by eps
    lengths[1] = 1;
    lengths[2] = 45;
    lengths[3] = 17;
    expect_stages_match(definition, problem);
    for (const Stage& stage : definition.stages()) {
      const Outputs outputs = evaluate(definition, stage, problem);
      for (const float o : outputs.at("o").elements<float>().subspan(0, 2 * 45 * 12)) ASSERT_EQ(o, 0.0f) << stage.name;
    }
  }
}

TEST(NumbersTest, OtherNumbersOfKeysThanQueries) {
  for (const char* name : {"causal_attention", "bidirectional_attention"}) {
    const Operator& definition = find_operator(name);
    for (const std::int64_t keys : {1, 30, 51, 80}) {
      SCOPED_TRACE(keys);
      expect_stages_match(
          definition,
          make_problem(definition,
                       {.sizes = {{"B", 2}, {"H", 2}, {"L", 50}, {"Lk", keys}, {"Dk", 24}, {"Dv", 33}}, .seed = 11}));
    }
  }
}

TEST(NumbersTest, LargeAndSmallInputsKeepTheirRelativeError) {
  const Operator& definition = find_operator("causal_dot_product");
  for (const float factor : {1e-9f, 1e9f}) {
    Problem problem =
        make_problem(definition, {.sizes = {{"B", 1}, {"H", 1}, {"L", 100}, {"Dk", 32}, {"Dv", 32}}, .seed = 5});
    for (float& x : problem.inputs.at("k").elements<float>()) x *= factor;
    expect_stages_match(definition, problem);
  }
}

TEST(NumbersTest, StagesWithoutAtomicsGiveTheSameBitsTwice) {
  for (const char* name : {"causal_dot_product", "causal_attention", "bidirectional_attention"}) {
    const Operator& definition = find_operator(name);
    const Problem problem =
        make_problem(definition, {.sizes = {{"B", 2}, {"H", 2}, {"L", 130}, {"Dk", 48}, {"Dv", 70}}, .seed = 9});
    for (const Stage& stage : definition.stages()) {
      if (stage.name == "atomic") continue;
      SCOPED_TRACE(definition.name() + " " + stage.name);
      const Outputs once = evaluate(definition, stage, problem), twice = evaluate(definition, stage, problem);
      EXPECT_TRUE(std::ranges::equal(once.at("o").elements<float>(), twice.at("o").elements<float>()));
    }
  }
}

TEST(MemoryTest, EigenTakesWhatItSays) {
  const Sizes sizes{{"B", 1}, {"H", 2}, {"L", 20000}, {"Lk", 10000}, {"Dk", 32}, {"Dv", 64}};
  expect_stated_memory(find_operator("bidirectional_attention"), "eigen", sizes);
  expect_stated_memory(find_operator("bidirectional_attention"), "the reference", sizes);
}

}  // namespace
}  // namespace tutorial
