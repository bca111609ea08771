/// @file
/// Numbers that could go wrong: large and small ones, an absent initial state, what the operator must be equal to by
/// hand, and what stages say of themselves.

#include <algorithm>
#include <cmath>

#include "03_gla/gla/matches_chapter_02.hpp"
#include "03_gla/test/stages.hpp"

namespace tutorial {
namespace {

TEST(NumbersTest, WithoutGatesItIsChapter02) {
  const Demonstration shown = gla::matches_chapter_02();
  EXPECT_TRUE(shown.passed) << shown.text;
}

// q = k = v = 1 and gates of 1/2: S_t = 2 - 2^-t, from S_0 = 0 and t = 0.
TEST(NumbersTest, HalvesAddUpToTwo) {
  Problem problem = gla_problem(1, 2, 130, 16, 16);
  problem.inputs.erase("initial_state");
  for (auto& [name, tensor] : problem.inputs) fill(tensor, 1);
  fill(problem.inputs.at("g"), -std::log(2.0f));
  problem.scale = 0.25;
  for (const Stage& stage : gla_operator().stages()) {
    if (!why_not(gla_operator(), stage, problem).empty()) continue;  // 2^-130 is too much for parallel_unstable
    SCOPED_TRACE(stage.name);
    const Outputs outputs = evaluate(gla_operator(), stage, problem);
    const auto o = outputs.at("o").elements<float>();
    for (std::size_t i = 0; i < o.size(); ++i) {
      const float expected = 4 * (2 - std::ldexp(1.0f, -int(i / 16 % 130)));
      ASSERT_NEAR(o[i], expected, is_bf16(stage) ? expected / 128 : 4e-6) << i;
    }
    for (const float S : outputs.at("final_state").elements<float>()) {
      ASSERT_NEAR(S, 2, is_bf16(stage) ? 1.0 / 64 : 1e-6);
    }
  }
}

TEST(NumbersTest, LargeAndSmallInputsKeepTheirRelativeError) {
  for (const char* name : {"q", "k", "v"}) {
    for (const float factor : {0x1p-30f, 0x1p30f}) {
      SCOPED_TRACE(std::string(name) + " times " + std::to_string(factor));
      Problem problem = gla_problem(2, 1, 100, 32, 48);
      for (float& x : problem.inputs.at(name).elements<float>()) x *= factor;
      if (*name != 'q') {
        for (float& x : problem.inputs.at("initial_state").elements<float>()) x *= factor;
      }
      expect_stages_match(gla_operator(), problem);
    }
  }
}

TEST(NumbersTest, NoInitialStateIsAStateOfZeros) {
  const Operator& definition = gla_operator();
  Problem zeros = gla_problem(2, 1, 70, 48, 32), none = gla_problem(2, 1, 70, 48, 32);
  fill(zeros.inputs.at("initial_state"), 0);
  none.inputs.erase("initial_state");
  expect_stages_match(definition, none);
  for (const Stage& stage : definition.stages()) {
    SCOPED_TRACE(stage.name);
    expect_close(evaluate(definition, stage, none), evaluate(definition, stage, zeros), 1e-6);
  }
}

// What the graph measure calls: without an initial state, and nobody asks for the final one.
TEST(NumbersTest, StatesThatNobodyAsksForAreNotWritten) {
  for (const char* name : {"gla", "retention"}) {
    const Operator& definition = find_operator(name);
    Problem problem =
        make_problem(definition, {.sizes = {{"B", 1}, {"H", 2}, {"L", 70}, {"Dk", 48}, {"Dv", 32}}, .seed = 5});
    problem.inputs.erase("initial_state");
    for (const Stage& stage : definition.stages()) {
      SCOPED_TRACE(name + (" " + stage.name));
      StageTensors placement(definition, problem, stage.processor, storage_of(stage), Dtype::fp32);
      placement.poison_outputs();
      stage.run(placement.graph_call());
      const Outputs outputs = placement.download_outputs();
      const Comparison c = compare(outputs.at("o"), evaluate_reference(definition, problem, stage.dtype).at("o"));
      EXPECT_TRUE(c.within(tolerance_of(stage, problem.sizes))) << describe(c, "o");
      EXPECT_TRUE(compare(outputs.at("final_state"), outputs.at("final_state")).unwritten);
    }
  }
}

TEST(NumbersTest, EveryStageGivesTheSameBitsTwice) {
  const Problem problem = gla_problem(1, 2, 130, 48, 80);
  for (const Stage& stage : gla_operator().stages()) {
    const Outputs once = evaluate(gla_operator(), stage, problem), twice = evaluate(gla_operator(), stage, problem);
    for (const auto& [name, tensor] : once) {
      EXPECT_TRUE(std::ranges::equal(tensor.elements<float>(), twice.at(name).elements<float>()))
          << stage.name << " " << name;
    }
  }
}

TEST(NumbersTest, MemoryIsThatOfStatesAndSums) {
  const auto bytes = [](const char* stage, std::int64_t L) {
    const Sizes sizes{{"B", 2}, {"H", 3}, {"L", L}, {"Dk", 16}, {"Dv", 32}, {"C", 64}};
    return find_stage(gla_operator(), stage).memory(Call(sizes, 1));
  };
  EXPECT_EQ(bytes("chunk_gpu", 64), 4 * 6 * (16 * 32 + 2 * 64 * 16));
  EXPECT_EQ(bytes("chunk_gpu", 65), 4 * 6 * (2 * 16 * 32 + 2 * 65 * 16));
}

TEST(NumbersTest, LimitsAreNamed) {  // and asked for before there are tensors
  const auto unsupported = [](const char* stage, const Sizes& sizes) {
    return find_stage(gla_operator(), stage).unsupported(Call(sizes, 1));
  };
  const Sizes small{{"B", 1}, {"H", 1}, {"L", 64}, {"Dk", 64}, {"Dv", 64}, {"C", 64}};
  const auto with = [&](const char* symbol, std::int64_t size) {
    Sizes sizes = small;
    sizes[symbol] = size;
    return sizes;
  };
  for (const char* stage : {"parallel_unstable", "parallel_log", "recurrent_gpu", "chunk_gpu", "subchunk_tensor_core",
                            "subchunk_walk", "segments", "dispatch"}) {
    EXPECT_EQ(unsupported(stage, small), "") << stage;
  }
  for (const char* stage : {"parallel_unstable", "parallel_log"}) {
    EXPECT_EQ(unsupported(stage, with("L", 8192)), "");
    EXPECT_NE(unsupported(stage, with("L", 8193)), "");
  }
  EXPECT_EQ(unsupported("recurrent_gpu", with("Dk", 256)), "");
  EXPECT_NE(unsupported("recurrent_gpu", with("Dk", 257)), "");
  EXPECT_EQ(unsupported("chunk_gpu", with("Dk", 4095 * 64)), "");
  EXPECT_NE(unsupported("chunk_gpu", with("Dk", 4095 * 64 + 1)), "");
  for (const char* stage : {"subchunk_tensor_core", "subchunk_walk", "segments"}) {
    EXPECT_EQ(unsupported(stage, with("Dk", 256)), "") << stage;
    EXPECT_NE(unsupported(stage, with("Dk", 272)), "") << stage;
    EXPECT_NE(unsupported(stage, with("Dk", 24)), "") << stage;
    EXPECT_EQ(unsupported(stage, with("Dv", 512)), "") << stage;
    EXPECT_NE(unsupported(stage, with("Dv", 8)), "") << stage;
  }
  EXPECT_EQ(unsupported("dispatch", with("Dk", 257)), "");
  EXPECT_NE(unsupported("dispatch", with("Dk", 4095 * 64 + 1)), "");
  Sizes many = with("B", 1 << 16);
  many["H"] = 1 << 15;
  for (const char* stage : {"recurrent_gpu", "chunk_gpu", "dispatch"}) EXPECT_NE(unsupported(stage, many), "") << stage;
}

}  // namespace
}  // namespace tutorial
