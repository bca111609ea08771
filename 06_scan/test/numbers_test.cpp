/// @file
/// Hard gates: none, all, and both side by side.

#include <array>
#include <bit>
#include <cmath>

#include "06_scan/test/stages.hpp"

namespace tutorial {
namespace {

template <class Gate>
void set_gates(Problem& problem, Gate gate) {
  std::size_t i = 0;
  for (float& g : problem.inputs.at("log_decay").elements<float>()) g = gate(i++);
}

template <class Gate>
void expect_right(Gate gate, std::int64_t L = 1500) {
  for (const char* form : {"", "backward"}) {
    const Operator& definition = scan_operator(form);
    for (const auto& [D, Dg] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 3}, {40, 40}, {40, 1}}) {
      SCOPED_TRACE(definition.label() + ", D " + std::to_string(D) + ", Dg " + std::to_string(Dg));
      Problem problem = drawn(1, 2, L, D, Dg, definition);
      set_gates(problem, gate);
      expect_stages_match(problem, {}, definition);
    }
  }
}

TEST(NumbersTest, OpenGatesAreASum) {
  expect_right([](std::size_t) { return 0.0f; });
}

// Gates that forget nothing, but for a few, over several tiles: the first step still counts in the last tile. (Drawn
// gates forget everything within some 200 steps, a tile being 8192, 2048 or 256.)
TEST(NumbersTest, WhatCameTilesBeforeCounts) {
  const auto gate = [](std::size_t i) { return i % 5003 == 5002 ? -0.25f : 0.0f; };
  for (const char* form : {"", "backward"}) {
    const Operator& definition = scan_operator(form);
    for (const auto& [L, D, Dg] : {std::array<std::int64_t, 3>{40960, 1, 1},
                                   {40963, 1, 1},
                                   {10241, 3, 3},
                                   {10241, 3, 1},
                                   {10240, 4, 4},
                                   {1283, 40, 40},
                                   {1283, 40, 1}}) {
      SCOPED_TRACE(definition.label() + ", L " + std::to_string(L) + ", D " + std::to_string(D) + ", Dg " +
                   std::to_string(Dg));
      Problem problem = drawn(1, 3, L, D, Dg, definition);
      set_gates(problem, gate);
      expect_stage_matches("dispatch", problem, definition);
    }
  }
}

// Also the one that memory holds where nothing has been published yet: a tile that waits for it would wait for ever.
TEST(NumbersTest, EveryNaNGoesOn) {
  const Operator& definition = scan_operator();
  for (const auto& [L, D] : {std::pair<std::int64_t, std::int64_t>{20000, 1}, {5000, 3}, {600, 40}}) {
    Problem problem = drawn(1, 1, L, D, D);
    problem.inputs.at("log_decay").elements<float>()[0] = std::bit_cast<float>(0xFFFFFFFFu);
    problem.inputs.at("x").elements<float>()[0] = std::bit_cast<float>(0xFFFFFFFFu);
    for (const char* name : {"single_pass", "warp_look_back", "wide_tiles", "channel_lanes", "dispatch"}) {
      SCOPED_TRACE(name);
      const Stage& stage = find_stage(definition, name);
      if (!why_not(definition, stage, problem).empty()) continue;  // D > 1
      const Outputs outputs = evaluate(definition, stage, problem);
      EXPECT_TRUE(std::isnan(outputs.at("y").elements<float>()[std::size_t((L - 1) * D)]));
    }
  }
}

TEST(NumbersTest, ClosedGatesForget) {
  expect_right([](std::size_t) { return -1e4f; });
  expect_right([](std::size_t) { return -3.4e38f; });  // as masks have it: the sum of the gates is -inf
  const Operator& definition = scan_operator();
  for (const std::int64_t D : {1, 3, 40}) {
    Problem problem = drawn(1, 2, 5000, D, D);
    set_gates(problem, [](std::size_t) { return -1e4f; });
    for (const Stage& stage : definition.stages()) {
      if (!why_not(definition, stage, problem).empty()) continue;
      SCOPED_TRACE(stage.name);
      const Outputs outputs = evaluate(definition, stage, problem);
      EXPECT_EQ(compare(outputs.at("y"), problem.inputs.at("x")).error, 0) << "y = x, to the last bit";
    }
  }
}

// What comes after a closed gate is as exact as if the sequence began there: the sum of so many gates has no digits
// left for a gate of 0.01, and is not asked for any.
TEST(NumbersTest, BothKindsSideBySide) {
  expect_right([](std::size_t i) { return i % 7 == 3 ? -1e4f : i % 3 == 0 ? 0.0f : -0.01f; });
  // Hardly two alike, and every channel closed every 331 steps (a prime, so that it is every channel): the loop over
  // time multiplies by each gate, a GPU's expf() rounds those close to 1 to one side, and over thousands of steps that
  // passes what a check allows (1.8e-5 on an H200).
  expect_right([](std::size_t i) { return i % 331 == 330 ? -1e4f : -1e-6f * float(1 + i * 7919 % 1009); }, 5000);
  expect_right([](std::size_t i) { return i % 2 == 0 ? -1e4f : 0.0f; });
}

// The error of a sum in fp32 must not grow with the sum: -0.1 has no exact form, and each addition would err alike.
TEST(NumbersTest, SumOfManyEqualGates) {
  const Operator& definition = scan_operator();
  Problem problem = drawn(1, 1, 200000, 1, 1);
  set_gates(problem, [](std::size_t) { return -0.1f; });
  const Outputs expected = evaluate_reference(definition, problem);
  for (const char* name : {"sequential_gpu", "single_pass", "wide_tiles", "dispatch"}) {
    SCOPED_TRACE(name);
    const Stage& stage = find_stage(definition, name);
    expect_close(evaluate(definition, stage, problem), expected, 1e-5);
  }
}

}  // namespace
}  // namespace tutorial
