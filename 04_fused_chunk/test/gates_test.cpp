/// @file
/// Gates of every strength: all stages give finite results as close to the double reference as ever.

#include <array>
#include <cmath>
#include <functional>

#include "04_fused_chunk/test/stages.hpp"
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
    {"AllButTheLastStrong", [](auto t, auto, double, float) { return t % 16 < 14 ? kStrong : -0.01f; }},
    {"OneStrongElement", [](auto, auto d, double, float drawn) { return d == 3 ? kStrong : drawn; }},
    {"FirstOfEachChunkStrong", [](auto t, auto, double, float drawn) { return t % 64 == 0 ? kStrong : drawn; }},
    {"LastOfEachSubChunkStrong", [](auto t, auto, double, float drawn) { return t % 16 == 15 ? kStrong : drawn; }},
    {"AllStrengths", [](auto, auto, double u, float) { return -float(std::pow(10.0, 14 * u - 10)); }},
    {"ADigitLessEachTime", [](auto, auto, double, float) { return -2.302585f; }},
    {"AsStrongAsFloatGets", [](auto, auto, double u, float drawn) { return u < 0.2 ? -3e38f : drawn; }},
    {"AsWeakAsFloatGets", [](auto, auto, double u, float) { return u < 0.5 ? -1e-38f : -1e-7f; }},
};

class GatesTest : public testing::TestWithParam<Pattern> {};

TEST_P(GatesTest, EveryStageIsRight) {
  for (const char* name : {"gla", "simple_gla"}) {
    const Operator& definition = find_operator(name);
    for (const auto& [L, Dk, Dv] : {std::array<std::int64_t, 3>{200, 48, 80}, {130, 128, 16}, {1000, 16, 16}}) {
      SCOPED_TRACE(name + (" of L " + std::to_string(L)));
      Problem problem = drawn(definition, 1, 2, L, Dk, Dv);
      Tensor& tensor = problem.inputs.at("g");
      const auto g = tensor.elements<float>();
      const auto length = std::size_t(L), width = tensor.shape().size() > 3 ? std::size_t(Dk) : 1;
      const Random random(1, "pattern");
      for (std::size_t i = 0; i < g.size(); ++i) {
        g[i] = GetParam().gate(std::int64_t(i / width % length), std::int64_t(i % width), random.uniform(i), g[i]);
        ASSERT_LE(g[i], 0);
      }
      EXPECT_EQ(expect_stages_match(definition, problem), all_stages(definition, Dk));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, GatesTest, testing::ValuesIn(kPatterns),
                         [](const auto& info) { return std::string(info.param.name); });

// What a weak gate behind many strong ones decides must be right to more digits than bf16 has: with gates of -1e4 but
// for the last two of a sub-chunk, the sum in front of these is large, and their difference small.
TEST(GatesTest, WeakGatesBehindStrongOnesKeepTheirDigits) {
  for (const char* name : {"gla", "simple_gla"}) {
    const Operator& definition = find_operator(name);
    Problem weak = drawn(definition, 1, 1, 64, 16, 16);
    const auto width = std::size_t(weak.inputs.at("g").size()) / 64;
    const auto g = weak.inputs.at("g").elements<float>();
    for (std::size_t i = 0; i < g.size(); ++i) g[i] = i / width % 16 < 14 ? kStrong : -0.5f;
    for (float& q : weak.inputs.at("q").elements<float>()) q = 1;  // exact in bf16, and so is what follows
    for (float& k : weak.inputs.at("k").elements<float>()) k = 1;
    for (const char* input : {"v", "initial_state"}) {
      for (float& x : weak.inputs.at(input).elements<float>()) x = 1;
    }
    const Outputs truth = evaluate_reference(definition, weak);
    for (const Stage& stage : definition.stages()) {
      if (is_for_another_gpu(stage)) continue;
      const Outputs outputs = evaluate(definition, stage, weak);
      // Scores are rounded to bf16 once, half a unit in the last of 8 places.
      const Comparison c = compare(outputs.at("o"), truth.at("o"));
      EXPECT_TRUE(c.within(is_bf16(stage) ? 2.1e-3 : 1e-5)) << name << " " << stage.name << ": " << describe(c, "o");
    }
  }
}

}  // namespace
}  // namespace tutorial
