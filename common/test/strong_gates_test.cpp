/// @file
/// Gates from half open to closed: every stage is right relative to the size that each output has, dg as well. Part of the
/// tests of every chapter whose operators have gates. Why that can be asked of dg stands with Operator::cancels().

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "common/test/small_problem.hpp"

namespace tutorial {
namespace {

constexpr float kLevels[] = {0, -1, -5, -10, -14, -20, -30, -60};

/// g of position t and channel d. A level is that of the closed gates.
struct Pattern {
  const char* name;
  float (*gate)(float level, std::int64_t t, std::int64_t d);
};
constexpr Pattern kPatterns[] = {
    {"AllEqual", [](float level, std::int64_t, std::int64_t) { return level; }},
    {"Alternating", [](float level, std::int64_t t, std::int64_t) { return t % 2 == 0 ? level : -0.01f; }},
    {"OneOpenChannel", [](float level, std::int64_t, std::int64_t d) { return d == 3 ? -0.01f : level; }},
};

class StrongGatesTest : public testing::TestWithParam<Pattern> {};

TEST_P(StrongGatesTest, EveryStageKeepsItsDigits) {
  const Chapter contents = chapter();
  std::uint64_t number = 0;
  for (const Operator& definition : contents.operators()) {
    const auto is_gate = [](const Input& input) { return input.name == "g" || input.name == "log_decay"; };
    const auto gates = std::ranges::find_if(definition.inputs(), is_gate);
    if (gates == definition.inputs().end() || definition.has_symbol("N") || shares_heads(definition)) continue;
    const bool has_channels = gates->dims.size() == 4;
    if (!has_channels && std::string(GetParam().name) == "OneOpenChannel") continue;
    for (const float level : kLevels) {
      for (const auto& [L, seed] : small_draws(++number)) {
        Problem problem = small_problem(definition, seed, L);
        SCOPED_TRACE(definition.label() + ", level " + std::to_string(level) + ", L = " + std::to_string(L) +
                     ", seed " + std::to_string(seed));
        const auto g = problem.inputs.at(gates->name).elements<float>();
        const std::int64_t width = has_channels ? kSmallWidth : 1;
        for (std::int64_t i = 0; i < std::ssize(g); ++i) g[i] = GetParam().gate(level, i / width, i % width);
        References references(definition, problem);
        int ran = 0;
        for (const Stage& stage : definition.stages()) {
          if (!why_not(definition, stage, problem).empty()) continue;
          ++ran;
          EXPECT_LE(error_in_tolerances(definition, stage, problem, references.of(stage)), 1) << stage.name;
        }
        EXPECT_GE(ran, 1);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, StrongGatesTest, testing::ValuesIn(kPatterns),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tutorial
