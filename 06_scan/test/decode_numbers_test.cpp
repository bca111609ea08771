/// @file
/// Numbers that are hard: gates that forget everything or nothing, beta of 0 and 1, denominators made of eps.

#include "06_scan/test/decode_stages.hpp"

namespace tutorial {
namespace {

/// Gates or betas: `value` at every third place, those drawn elsewhere.
void expect_match_with(const char* label, const char* input, float value) {
  SCOPED_TRACE(std::string(input) + " = " + std::to_string(value));
  const Operator& definition = decode_operator(label);
  for (const std::int64_t P : {0, 5}) {
    Problem problem = drawn_tokens(definition, 1, 2, 12, P, 32, 16);
    const auto elements = problem.inputs.at(input).elements<float>();
    for (std::size_t i = 0; i < elements.size(); i += 3) elements[i] = value;
    expect_tokens_match(definition, problem);
  }
}

TEST(DecodeNumbersTest, Gates) {
  for (const float gate : {-1e4f, -100.0f, 0.0f}) {
    expect_match_with("decode", "g", gate);
    expect_match_with("decode --gla", "g", gate);
    expect_match_with("decode --gated-delta-rule", "g", gate);
    expect_match_with("decode --kda", "g", gate);
  }
}

// What comes after a gate of -1e4 is as exact as if the sequence began there.
TEST(DecodeNumbersTest, AGateOfNothingForgetsTheState) {
  for (const char* label : {"decode", "decode --gla", "decode --gated-delta-rule", "decode --kda"}) {
    const Operator& definition = decode_operator(label);
    Problem problem = drawn_tokens(definition, 1, 2, 1, 0, 32, 16);
    for (float& g : problem.inputs.at("g").elements<float>()) g = -1e4f;
    const Stage& stage = find_stage(definition, "dispatch");
    const Outputs outputs = evaluate(definition, stage, problem);
    problem.inputs.erase("initial_state");
    expect_close(outputs, evaluate(definition, stage, problem), 0);
  }
}

TEST(DecodeNumbersTest, Betas) {
  for (const float beta : {0.0f, 1.0f}) {
    expect_match_with("decode --delta-rule", "beta", beta);
    expect_match_with("decode --gated-delta-rule", "beta", beta);
    expect_match_with("decode --kda", "beta", beta);
  }
}

// beta = 1, |k| = 1: the state then answers the key with the value.
TEST(DecodeNumbersTest, TheDeltaRuleOverwrites) {
  const Operator& definition = decode_operator("decode --delta-rule");
  Problem problem = drawn_tokens(definition, 1, 1, 1, 0, 16, 16);
  problem.scale = 1;
  for (float& beta : problem.inputs.at("beta").elements<float>()) beta = 1;
  for (const char* name : {"q", "k"}) {
    const auto row = problem.inputs.at(name).elements<float>();
    std::fill(row.begin(), row.end(), 0.25f);
  }
  const Outputs outputs = evaluate(definition, find_stage(definition, "dispatch"), problem);
  EXPECT_TRUE(compare(outputs.at("o"), problem.inputs.at("v")).within(4e-3));
}

// The first token alone, z = phi(k): with equal q and k the output is v.
TEST(DecodeNumbersTest, TheNormaliserDividesByItsOwnSum) {
  const Operator& definition = decode_operator("decode --normalized");
  Problem problem = drawn_tokens(definition, 1, 3, 1, 0, 24, 20);
  problem.inputs.erase("initial_state");
  problem.inputs.erase("initial_z");
  const Outputs outputs = evaluate(definition, find_stage(definition, "dispatch"), problem);
  EXPECT_TRUE(compare(outputs.at("o"), problem.inputs.at("v")).within(4e-3));
}

}  // namespace
}  // namespace tutorial
