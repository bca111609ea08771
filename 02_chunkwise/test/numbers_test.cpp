/// @file
/// Numbers that could go wrong: large and small ones, an absent initial state, and what the operator must be equal to
/// by hand.

#include <algorithm>
#include <cmath>

#include "02_chunkwise/test/stages.hpp"

namespace tutorial {
namespace {

Problem problem_of(std::int64_t L, std::int64_t Dk, std::int64_t Dv) {
  return make_problem(linear_attention_operator(),
                      {.sizes = {{"B", 2}, {"H", 1}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}}, .seed = 5});
}

TEST(NumbersTest, OnesCountTheKeys) {  // q = k = v = S_0 = 1: o_t = scale Dk (t + 2), S = L + 1
  Problem problem = problem_of(130, 16, 16);
  for (auto& [name, tensor] : problem.inputs) fill(tensor, 1);
  problem.scale = 0.25;
  for (const Stage& stage : linear_attention_operator().stages()) {
    SCOPED_TRACE(stage.name);
    const Outputs outputs = evaluate(linear_attention_operator(), stage, problem);
    const auto o = outputs.at("o").elements<float>();
    for (std::size_t i = 0; i < o.size(); ++i) {
      const float expected = float(4 * (i / 16 % 130 + 2));
      ASSERT_NEAR(o[i], expected, is_bf16(stage) ? expected / 256 : 0) << i;  // bf16 has 8 bits
    }
    if (outputs.count("final_state") == 0) continue;
    for (const float S : outputs.at("final_state").elements<float>()) ASSERT_EQ(S, 131);
  }
}

TEST(NumbersTest, LargeAndSmallInputsKeepTheirRelativeError) {
  for (const char* name : {"q", "k", "v"}) {
    for (const float factor : {0x1p-30f, 0x1p30f}) {
      SCOPED_TRACE(std::string(name) + " times " + std::to_string(factor));
      Problem problem = problem_of(100, 32, 48);
      for (float& x : problem.inputs.at(name).elements<float>()) x *= factor;
      if (*name != 'q') {
        for (float& x : problem.inputs.at("initial_state").elements<float>()) x *= factor;
      }
      expect_stages_match(problem);
    }
  }
}

TEST(NumbersTest, InputsOfAllMagnitudes) {  // 1e-12 to 1e12, each row of k and v its own
  Problem problem = problem_of(200, 32, 32);
  for (const char* name : {"k", "v"}) {
    const auto x = problem.inputs.at(name).elements<float>();
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= std::ldexp(1.0f, int(i / 32 * 7 % 41) - 20);
  }
  expect_stages_match(problem);
}

TEST(NumbersTest, NoInitialStateIsAStateOfZeros) {
  const Operator& definition = linear_attention_operator();
  Problem zeros = problem_of(70, 48, 32), none = problem_of(70, 48, 32);
  fill(zeros.inputs.at("initial_state"), 0);
  none.inputs.erase("initial_state");
  expect_stages_match(none);
  for (const Stage& stage : definition.stages()) {
    SCOPED_TRACE(stage.name);
    expect_close(evaluate(definition, stage, none), evaluate(definition, stage, zeros), 1e-6);
  }
}

TEST(NumbersTest, InitialStateAloneIsReadByEveryQuery) {  // k = 0: o_t = scale q_t S_0, and the state stays
  Problem problem = problem_of(70, 32, 32);
  fill(problem.inputs.at("k"), 0);
  expect_stages_match(problem);
  for (const Stage& stage : linear_attention_operator().stages()) {
    const Outputs outputs = evaluate(linear_attention_operator(), stage, problem);
    if (outputs.count("final_state") == 0) continue;
    EXPECT_TRUE(std::ranges::equal(outputs.at("final_state").elements<float>(),
                                   problem.inputs.at("initial_state").elements<float>()))
        << stage.name;
  }
}

// What the graph measure calls: without an initial state, and nobody asks for the final one.
TEST(NumbersTest, StatesThatNobodyAsksForAreNotWritten) {
  const Operator& definition = linear_attention_operator();
  Problem problem = problem_of(70, 48, 32);
  problem.inputs.erase("initial_state");
  for (const Stage& stage : definition.stages()) {
    SCOPED_TRACE(stage.name);
    StageTensors tensors(definition, problem, stage.processor, storage_of(stage), Dtype::fp32);
    tensors.poison_outputs();
    stage.run(tensors.graph_call());
    const Outputs outputs = tensors.download_outputs();
    const Comparison c = compare(outputs.at("o"), evaluate_reference(definition, problem, stage.dtype).at("o"));
    EXPECT_TRUE(c.within(tolerance_of(stage, problem.sizes))) << describe(c, "o");
    EXPECT_TRUE(compare(outputs.at("final_state"), outputs.at("final_state")).unwritten);
  }
}

TEST(NumbersTest, EveryStageGivesTheSameBitsTwice) {
  const Operator& definition = linear_attention_operator();
  const Problem problem = problem_of(130, 48, 80);
  for (const Stage& stage : definition.stages()) {
    const Outputs once = evaluate(definition, stage, problem), twice = evaluate(definition, stage, problem);
    for (const auto& [name, tensor] : once) {
      EXPECT_TRUE(std::ranges::equal(tensor.elements<float>(), twice.at(name).elements<float>()))
          << stage.name << " " << name;
    }
  }
}

TEST(NumbersTest, MemoryIsThatOfTheStates) {
  const auto bytes = [](const char* stage, std::int64_t L) {
    const Sizes sizes{{"B", 2}, {"H", 3}, {"L", L}, {"Dk", 16}, {"Dv", 32}, {"C", 64}};
    return find_stage(stage).memory(Call(sizes, 1));
  };
  EXPECT_EQ(bytes("recurrent", 65), 4 * 6 * 65 * 16);
  EXPECT_EQ(bytes("materialized", 64), 4 * 6 * 16 * 32);
  EXPECT_EQ(bytes("materialized", 65), 2 * 4 * 6 * 16 * 32);
  EXPECT_EQ(bytes("parallel", 8192) % (std::int64_t{4} * 8192 * 8192), 0);
}

TEST(NumbersTest, WhatIsNotSupportedIsNamed) {
  const auto unsupported = [](const char* stage, const Sizes& sizes) {
    return find_stage(stage).unsupported(Call(sizes, 1));
  };
  const Sizes small{{"B", 1}, {"H", 1}, {"L", 64}, {"Dk", 64}, {"Dv", 64}, {"C", 64}};
  const auto with = [&](const char* symbol, std::int64_t size) {
    Sizes sizes = small;
    sizes[symbol] = size;
    return sizes;
  };
  for (const char* stage : {"recurrent", "parallel", "materialized", "fused"}) EXPECT_EQ(unsupported(stage, small), "");
  EXPECT_EQ(unsupported("parallel", with("L", 8192)), "");
  EXPECT_NE(unsupported("parallel", with("L", 8193)), "");
  EXPECT_EQ(unsupported("fused", with("Dk", 384)), "");
  EXPECT_NE(unsupported("fused", with("Dk", 385)), "");
  EXPECT_EQ(unsupported("materialized", with("Dk", 4095 * 64)), "");
  EXPECT_NE(unsupported("materialized", with("Dk", 4095 * 64 + 1)), "");
  Sizes many = with("B", 1 << 16);
  many["H"] = 1 << 15;
  EXPECT_NE(unsupported("materialized", many), "");
  EXPECT_NE(unsupported("fused", many), "");
  EXPECT_NE(unsupported("recurrent", many), "");
}

}  // namespace
}  // namespace tutorial
