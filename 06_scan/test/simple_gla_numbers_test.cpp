/// @file
/// Hard gates: none, all, and both side by side; no tile divides by a gate, or loses what follows a closed one.

#include <cmath>
#include <functional>

#include "06_scan/test/states.hpp"
#include "common/random.hpp"

namespace tutorial {
namespace {

/// The gate of a step; u is uniform in (0, 1), `drawn` what the operator has drawn.
using Gate = std::function<float(std::int64_t t, double u, float drawn)>;

struct Pattern {
  const char* name;
  Gate gate;
};

const Pattern kPatterns[] = {
    {"Closed", [](auto, double, float) { return -1e4f; }},
    {"Open", [](auto, double, float) { return 0.0f; }},
    {"OpenOrClosed", [](auto, double u, float) { return u < 0.1 ? -1e4f : 0.0f; }},
    {"ClosedInHalf", [](auto, double u, float drawn) { return u < 0.5 ? -1e4f : drawn; }},
    {"ClosedTiles", [](auto t, double, float drawn) { return t / 64 % 2 == 1 ? -1e4f : drawn; }},
    {"FirstOfTileClosed", [](auto t, double, float) { return t % 64 == 0 ? -1e4f : 0.0f; }},
    {"LastOfTileClosed", [](auto t, double, float) { return t % 64 == 63 ? -1e4f : 0.0f; }},
    {"WeakBehindClosed", [](auto t, double, float) { return t % 16 < 8 ? -1e4f : -1e-3f; }},
    {"AllStrengths", [](auto, double u, float) { return -float(std::pow(10.0, 14 * u - 10)); }},
    {"AsStrongAsFloatGets", [](auto, double u, float drawn) { return u < 0.2 ? -3e38f : drawn; }},
    {"AsWeakAsFloatGets", [](auto, double u, float) { return u < 0.5 ? -1e-38f : -1e-7f; }},
};

class SimpleGlaNumbersTest : public testing::TestWithParam<Pattern> {};

TEST_P(SimpleGlaNumbersTest, AreRight) {
  const Operator& definition = state_operator("simple_gla");
  for (const auto& [L, Dk, Dv] : {std::array<std::int64_t, 3>{300, 8, 5}, {130, 144, 16}}) {
    SCOPED_TRACE("L " + std::to_string(L));
    Problem problem = drawn_states(definition, 1, 2, L, Dk, Dv);
    const auto g = problem.inputs.at("g").elements<float>();
    const Random random(1, "pattern");
    for (std::size_t i = 0; i < g.size(); ++i) {
      g[i] = GetParam().gate(std::int64_t(i) % L, random.uniform(i), g[i]);
    }
    expect_scans_match(definition, problem);
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, SimpleGlaNumbersTest, testing::ValuesIn(kPatterns),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tutorial
