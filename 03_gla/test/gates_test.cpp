/// @file
/// Gates of every strength: all stages that take them give finite results as close to the double reference as ever.

#include <algorithm>
#include <cmath>
#include <functional>

#include "03_gla/test/stages.hpp"
#include "common/random.hpp"

namespace tutorial {
namespace {

constexpr float kStrong = -1e4f;

/// The gate of a position and an element of it; u is uniform in (0, 1), `drawn` what the operator has drawn.
using Gate = std::function<float(std::int64_t t, std::int64_t d, double u, float drawn)>;

struct Pattern {
  const char* name;
  Gate gate;
};

const Pattern kPatterns[] = {
    {"StrongEverywhere", [](auto, auto, double, float) { return kStrong; }},
    {"StrongIn2Percent", [](auto, auto, double u, float drawn) { return u < 0.02 ? kStrong : drawn; }},
    {"StrongInHalf", [](auto, auto, double u, float drawn) { return u < 0.5 ? kStrong : drawn; }},
    {"ZeroEverywhere", [](auto, auto, double, float) { return 0.0f; }},
    {"ZeroOrStrong", [](auto, auto, double u, float) { return u < 0.1 ? kStrong : 0.0f; }},
    {"WholeChunksStrong", [](auto t, auto, double, float drawn) { return t / 64 % 2 == 1 ? kStrong : drawn; }},
    {"WholeSubChunksStrong", [](auto t, auto, double, float drawn) { return t / 16 % 2 == 1 ? kStrong : drawn; }},
    {"OneStrongElement", [](auto, auto d, double, float drawn) { return d == 3 ? kStrong : drawn; }},
    {"FirstOfEachChunkStrong", [](auto t, auto, double, float drawn) { return t % 64 == 0 ? kStrong : drawn; }},
    {"AllStrengths", [](auto, auto, double u, float) { return -float(std::pow(10.0, 14 * u - 10)); }},
    {"ADigitLessEachTime", [](auto, auto, double, float) { return -2.302585f; }},
    {"AsStrongAsFloatGets", [](auto, auto, double u, float drawn) { return u < 0.2 ? -3e38f : drawn; }},
    {"AsWeakAsFloatGets", [](auto, auto, double u, float) { return u < 0.5 ? -1e-38f : -1e-7f; }},
};

class GatesTest : public testing::TestWithParam<Pattern> {};

TEST_P(GatesTest, EveryStageIsRight) {
  for (const auto& [L, Dk, Dv] : {std::array<std::int64_t, 3>{200, 48, 40}, {130, 128, 16}, {1000, 16, 16}}) {
    SCOPED_TRACE("L " + std::to_string(L));
    Problem problem = gla_problem(1, 2, L, Dk, Dv);
    const auto g = problem.inputs.at("g").elements<float>();
    const Random random(1, "pattern");
    for (std::size_t i = 0; i < g.size(); ++i) {
      const auto width = std::size_t(Dk), length = std::size_t(L);
      g[i] = GetParam().gate(std::int64_t(i / width % length), std::int64_t(i % width), random.uniform(i), g[i]);
      ASSERT_LE(g[i], 0);
    }
    expect_stages_match(gla_operator(), problem);
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, GatesTest, testing::ValuesIn(kPatterns),
                         [](const auto& info) { return std::string(info.param.name); });

// A strong gate forgets everything, be it 1e12 times as large as what comes after.
TEST(GatesTest, NothingLeaksThroughAStrongGate) {
  Problem problem = gla_problem(1, 1, 150, 16, 16);
  const auto forget_at = std::size_t(70), width = std::size_t(16);
  const auto g = problem.inputs.at("g").elements<float>(), k = problem.inputs.at("k").elements<float>();
  std::fill_n(g.begin() + forget_at * width, width, kStrong);
  for (std::size_t i = 0; i < forget_at * width; ++i) k[i] *= 1e12f;
  References references(gla_operator(), problem);
  for (const Stage& stage : gla_operator().stages()) {
    if (!why_not(gla_operator(), stage, problem).empty()) continue;
    const Outputs& truth = references.of(stage);
    const Outputs outputs = evaluate(gla_operator(), stage, problem);
    const Comparison c = compare(outputs.at("final_state"), truth.at("final_state"));
    EXPECT_TRUE(c.within(tolerance_of(stage, problem.sizes))) << stage.name << ": " << describe(c, "final_state");
  }
}

}  // namespace
}  // namespace tutorial
