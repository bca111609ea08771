/// @file
/// Numbers that could go wrong: keys that are alike, too long, or many; an absent initial state; and what stages say of
/// themselves.

#include <algorithm>
#include <cmath>
#include <iostream>

#include "05_deltanet_wy/demonstrations/delta_rule_neighbour.hpp"
#include "05_deltanet_wy/test/stages.hpp"
#include "common/random.hpp"

namespace tutorial {
namespace {

TEST(NumbersTest, WithNothingToReplaceItIsChapter02) {
  const Demonstration shown = delta_rule::matches_chapter_02();
  EXPECT_TRUE(shown.passed) << shown.text;
}

// Half of them start with a state, and half have only what is written: each angle and each beta is among both.
TEST(NumbersTest, KeysThatAreAlike) {
  bool has_state = false;
  for (const double cosine : {0.5, 0.9, 0.99, 1.0}) {
    for (const float beta : {0.5f, 0.9f, 0.99f, 0.999f, 1.0f}) {
      SCOPED_TRACE("cosine " + std::to_string(cosine) + ", beta " + std::to_string(beta));
      Problem problem = drawn(1, 1, 300, 64, 32);
      correlate(problem, cosine);
      fill(problem.inputs.at("beta"), beta);
      has_state = !has_state;
      if (!has_state) fill(problem.inputs.at("initial_state"), 0);
      expect_stages_match(problem, {}, Rounding::amplified);
    }
  }
}

// Why T is split: with one key throughout, tensor_core is wrong where fused and all after it are not.
TEST(NumbersTest, SplittingTMendsARepeatedKey) {
  Problem problem = drawn(1, 1, 512, 64, 64);
  correlate(problem, 1);
  fill(problem.inputs.at("beta"), 0.99f);
  problem.inputs.erase("initial_state");
  const Outputs truth = evaluate_reference(delta_rule_operator(), problem, Dtype::bf16);
  const auto error = [&](const char* stage) {
    const Outputs outputs = evaluate(delta_rule_operator(), find_stage(delta_rule_operator(), stage), problem);
    const double of_o = compare(outputs.at("o"), truth.at("o")).error;
    const double of_state = compare(outputs.at("final_state"), truth.at("final_state")).error;
    std::cout << stage << ": o " << of_o << ", final_state " << of_state << "\n";
    return std::max(of_o, of_state);
  };
  EXPECT_GT(error("tensor_core"), 0.1);
  for (const char* stage : {"fused", "warpgroup_chain", "scores_in_walk", "cluster", "three_blocks", "segments",
                            "specialized_warps", "one_kernel", "one_block", "dispatch"}) {
    if (!why_not(delta_rule_operator(), find_stage(delta_rule_operator(), stage), problem).empty()) continue;
    EXPECT_LT(error(stage), 3e-2) << stage;
  }
}

// What a stage is allowed for keys that are alike is a bound: one that rounds T to a single bf16 misses it.
TEST(NumbersTest, WhatKeysThatAreAlikeAllowIsABound) {
  const Operator& definition = delta_rule_operator();
  Problem problem = drawn(1, 1, 128, 64, 64);
  correlate(problem, 1);
  fill(problem.inputs.at("beta"), 0.999f);
  problem.inputs.erase("initial_state");
  const Outputs reference = evaluate_reference(definition, problem, Dtype::bf16);
  const auto error = [&](const char* stage) {
    return error_in_tolerances(definition, find_stage(definition, stage), problem, reference);
  };
  EXPECT_GT(error("tensor_core"), 1);
  EXPECT_LE(error("fused"), 1);
  EXPECT_LE(error("dispatch"), 1);
}

// E is rounded, and so is the state that it multiplies: no more than other factors are.
TEST(NumbersTest, SegmentsAreAsExactAsOneWalk) {
  const Operator& definition = delta_rule_operator();
  for (const auto& [cosine, beta] : {std::pair{0.0, 0.9f}, {0.9, 0.9f}, {1.0, 0.99f}, {0.5, 0.01f}}) {
    Problem problem = drawn(1, 1, 2048, 64, 64);
    if (!why_not(definition, find_stage(definition, "segments"), problem).empty()) GTEST_SKIP() << "not on Hopper";
    if (cosine > 0) correlate(problem, cosine);
    fill(problem.inputs.at("beta"), beta);
    const Outputs truth = evaluate_reference(definition, problem, Dtype::bf16);
    const auto errors = [&](const char* stage) {
      const Outputs outputs = evaluate(definition, find_stage(definition, stage), problem);
      return std::pair{compare(outputs.at("o"), truth.at("o")).error,
                       compare(outputs.at("final_state"), truth.at("final_state")).error};
    };
    const auto whole = errors("warpgroup_chain");
    const auto cut = errors("segments");
    std::cout << "cosine " << cosine << ", beta " << beta << ": o " << whole.first << ", segments " << cut.first
              << "; final_state " << whole.second << ", " << cut.second << "\n";
    EXPECT_LE(cut.first, 1.1 * whole.first);
    // Where little is written, one walk's roundings are small, too, and average out over its chunks.
    EXPECT_LE(cut.second, std::max(1.1 * whole.second, 1e-3));
  }
}

// One key and its opposite in turns, which as a sum would cancel.
TEST(NumbersTest, OppositeKeys) {
  Problem problem = drawn(1, 1, 200, 64, 32);
  correlate(problem, 1);
  const auto k = problem.inputs.at("k").elements<float>();
  for (std::size_t i = 0; i < k.size(); ++i) k[i] *= i / 64 % 2 == 1 ? -1.0f : 1.0f;
  fill(problem.inputs.at("beta"), 0.99f);
  expect_stages_match(problem, {}, Rounding::amplified);
}

// Longer than 1: a step overshoots, at sqrt(2) and beta = 1 it turns what is under the key round, and beyond it grows.
TEST(NumbersTest, KeysThatAreNotNormalized) {
  for (const float length : {0.01f, 1.2f, 1.41421356f, 1.6f}) {
    SCOPED_TRACE(length);
    Problem problem = drawn(1, 2, 200, 64, 32);
    for (float& x : problem.inputs.at("k").elements<float>()) x *= length;
    round_to_bf16(problem.inputs.at("k"));
    expect_stages_match(problem, {}, Rounding::amplified);
  }
}

TEST(NumbersTest, LongSequences) {
  Problem problem = drawn(1, 1, 4096, 32, 32);
  expect_stages_match(problem);
  fill(problem.inputs.at("beta"), 0.99f);
  expect_stages_match(problem, {}, Rounding::amplified);
}

TEST(NumbersTest, BetaOfAllStrengths) {
  Problem problem = drawn(1, 2, 150, 48, 32);
  const auto beta = problem.inputs.at("beta").elements<float>();
  const Random random(1, "pattern");
  for (std::size_t i = 0; i < beta.size(); ++i) beta[i] = float(std::pow(10.0, -12 * random.uniform(i)));
  expect_stages_match(problem);
  for (std::size_t i = 0; i < beta.size(); ++i) beta[i] = float(random.uniform(i) < 0.5);
  expect_stages_match(problem);
}

// Nothing is written: all queries read the initial state, and it stays, to the last bit.
TEST(NumbersTest, BetaOfZeroWritesNothing) {
  Problem problem = drawn(1, 2, 130, 48, 32);
  fill(problem.inputs.at("beta"), 0);
  expect_stages_match(problem);
  for (const Stage& stage : delta_rule_operator().stages()) {
    if (!why_not(delta_rule_operator(), stage, problem).empty()) continue;  // a GPU before Hopper
    const Outputs outputs = evaluate(delta_rule_operator(), stage, problem);
    EXPECT_TRUE(std::ranges::equal(outputs.at("final_state").elements<float>(),
                                   problem.inputs.at("initial_state").elements<float>()))
        << stage.name;
  }
}

TEST(NumbersTest, LargeAndSmallInputsKeepTheirRelativeError) {
  for (const char* name : {"q", "v"}) {
    for (const float factor : {0x1p-30f, 0x1p30f}) {
      SCOPED_TRACE(std::string(name) + " times " + std::to_string(factor));
      Problem problem = drawn(2, 1, 100, 32, 48);
      for (float& x : problem.inputs.at(name).elements<float>()) x *= factor;
      if (*name == 'v') {
        for (float& x : problem.inputs.at("initial_state").elements<float>()) x *= factor;
      }
      expect_stages_match(problem);
    }
  }
}

TEST(NumbersTest, NoInitialStateIsAStateOfZeros) {
  const Operator& definition = delta_rule_operator();
  Problem zeros = drawn(2, 1, 70, 48, 32), none = drawn(2, 1, 70, 48, 32);
  fill(zeros.inputs.at("initial_state"), 0);
  none.inputs.erase("initial_state");
  expect_stages_match(none);
  for (const Stage& stage : definition.stages()) {
    SCOPED_TRACE(stage.name);
    if (!why_not(definition, stage, none).empty()) continue;  // a GPU before Hopper
    expect_close(evaluate(definition, stage, none), evaluate(definition, stage, zeros), 1e-6);
  }
}

// What the graph measure calls: without an initial state, and nobody asks for the final one.
TEST(NumbersTest, StatesThatNobodyAsksForAreNotWritten) {
  for (const Operator* definition : {&delta_rule_operator(), &normalized_operator()}) {
    Problem problem = drawn(1, 2, 70, 48, 32, 64, *definition);
    problem.inputs.erase("initial_state");
    for (const Stage& stage : definition->stages()) {
      SCOPED_TRACE(definition->label() + " " + stage.name);
      if (!why_not(*definition, stage, problem).empty()) continue;
      StageTensors placement(*definition, problem, stage.processor, storage_of(stage), Dtype::fp32);
      placement.poison_outputs();
      stage.run(placement.graph_call());
      const Outputs outputs = placement.download_outputs();
      const Comparison c = compare(outputs.at("o"), evaluate_reference(*definition, problem, stage.dtype).at("o"));
      EXPECT_TRUE(c.within(tolerance_of(stage, problem.sizes))) << describe(c, "o");
      EXPECT_TRUE(compare(outputs.at("final_state"), outputs.at("final_state")).unwritten);
    }
  }
}

TEST(NumbersTest, EveryStageGivesTheSameBitsTwice) {
  const Problem problem = drawn(1, 2, 130, 48, 80);
  for (const Stage& stage : delta_rule_operator().stages()) {
    if (!why_not(delta_rule_operator(), stage, problem).empty()) continue;  // a GPU before Hopper
    const Outputs once = evaluate(delta_rule_operator(), stage, problem);
    const Outputs twice = evaluate(delta_rule_operator(), stage, problem);
    for (const auto& [name, tensor] : once) {
      EXPECT_TRUE(std::ranges::equal(tensor.elements<float>(), twice.at(name).elements<float>()))
          << stage.name << " " << name;
    }
  }
}

TEST(NumbersTest, OperationsAreCounted) {
  const Sizes sizes{{"B", 2}, {"H", 3}, {"L", 640}, {"Dk", 16}, {"Dv", 32}, {"C", 64}};
  const auto a_position = [&](const char* stage) {
    const Work work = delta_rule_operator().work_of(find_stage(delta_rule_operator(), stage), sizes);
    return work.fma_flops / (2 * 3 * 640);
  };
  const double with_state = 2 * 3 * 16 * 32, scores = 2 * 32.5 * (16 + 32), vectors = 2 * 31.5 * (16 + 16 + 32);
  EXPECT_EQ(a_position("recurrent"), with_state);
  EXPECT_EQ(a_position("recurrent_gpu"), with_state);
  EXPECT_EQ(a_position("wy"), with_state + scores + vectors);
  EXPECT_EQ(a_position("dense_product"),
            2 * (16 * 16 * 16 + 16 * 16 * 32 + 16 * 16 + 3 * 16 * 32 + 16.0 * 16 * 32 / 64));
  for (const char* stage : {"ut_transform", "chunk_gpu", "block_inverse"}) {
    EXPECT_DOUBLE_EQ(a_position(stage), with_state + scores + vectors + 2 * (64 * 64 / 6.0 + 16 + 32)) << stage;
  }
}

TEST(NumbersTest, MemoryIsThatOfVectorsAndStates) {
  const auto bytes = [](const char* stage, std::int64_t L, std::int64_t C) {
    const Sizes sizes{{"B", 2}, {"H", 3}, {"L", L}, {"Dk", 16}, {"Dv", 32}, {"C", C}};
    return find_stage(delta_rule_operator(), stage).memory(Call(sizes, 1));
  };
  EXPECT_EQ(bytes("chunk_gpu", 64, 64), 4 * 6 * (64 * 64 + 64 * (16 + 2 * 32) + 16 * 32));
  EXPECT_EQ(bytes("chunk_gpu", 65, 64), 4 * 6 * (2 * 64 * 64 + 65 * (16 + 2 * 32) + 2 * 16 * 32));
  for (const auto& [L, N] : {std::pair<std::int64_t, std::int64_t>{64, 1}, {65, 2}}) {
    const std::int64_t prepared = 3 * 10 * 16 * 16 * 2 + 64 * 4;  // a chunk's T, twice, and P, ten blocks each, and f
    EXPECT_EQ(bytes("tensor_core", L, 64), 6 * N * (prepared + 2 * (64 * (16 + 2 * 32) + 16 * 32)));
    for (const char* stage : {"fused", "specialized_warps", "dispatch"})
      EXPECT_EQ(bytes(stage, L, 64), 6 * N * prepared);
  }
  EXPECT_EQ(bytes("chunk_gpu", 64, 16), 4 * 6 * (4 * 16 * 16 + 64 * (16 + 2 * 32) + 4 * 16 * 32));
}

TEST(NumbersTest, WhatIsUnsupportedIsNamed) {  // and asked for before there are tensors
  const auto unsupported = [](const char* stage, const Sizes& sizes) {
    return find_stage(delta_rule_operator(), stage).unsupported(Call(sizes, 1));
  };
  const Sizes small{{"B", 1}, {"H", 1}, {"L", 64}, {"Dk", 64}, {"Dv", 64}, {"C", 64}};
  const auto with = [&](const char* symbol, std::int64_t size) {
    Sizes sizes = small;
    sizes[symbol] = size;
    return sizes;
  };
  Sizes many = with("B", 1 << 16);
  many["H"] = 1 << 15;
  for (const char* stage : {"recurrent_gpu", "chunk_gpu", "block_inverse"}) {
    EXPECT_EQ(unsupported(stage, small), "") << stage;
    EXPECT_EQ(unsupported(stage, with("Dk", 256)), "") << stage;
    EXPECT_NE(unsupported(stage, with("Dk", 257)), "") << stage;
    EXPECT_EQ(unsupported(stage, with("Dv", 5000)), "") << stage;
    EXPECT_NE(unsupported(stage, many), "") << stage;
    EXPECT_NE(unsupported(stage, with("L", 2147483647)), "") << stage;
  }
  EXPECT_NE(unsupported("chunk_gpu", with("C", 65)), "");
  EXPECT_EQ(unsupported("recurrent_gpu", with("C", 65)), "");
  for (const char* stage : {"tensor_core", "fused", "specialized_warps"}) {
    EXPECT_EQ(unsupported(stage, with("C", 65)), "") << stage;
    for (const std::int64_t width : {16, 80, 256})
      EXPECT_EQ(unsupported(stage, with("Dk", width)), "") << stage << width;
    for (const std::int64_t width : {8, 40, 272})
      EXPECT_NE(unsupported(stage, with("Dk", width)), "") << stage << width;
    EXPECT_EQ(unsupported(stage, with("Dv", 512)), "") << stage;
    EXPECT_NE(unsupported(stage, with("Dv", 528)), "") << stage;
    EXPECT_NE(unsupported(stage, with("B", 65536)), "") << stage;
    EXPECT_NE(unsupported(stage, with("L", 2147483647)), "") << stage;
  }
}

}  // namespace
}  // namespace tutorial
