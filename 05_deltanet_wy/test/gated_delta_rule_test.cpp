/// @file
/// The operator `gated_delta_rule`: golden files, odd shapes, gates and keys that could go wrong, and bad input.

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "05_deltanet_wy/demonstrations/gated_delta_rule_neighbours.hpp"
#include "05_deltanet_wy/test/stages.hpp"
#include "common/chapter/machine.hpp"
#include "common/error.hpp"
#include "common/random.hpp"
#include "common/safetensors.hpp"
#include "common/test/temporary_folder.hpp"

namespace tutorial {
namespace {

constexpr float kStrong = -1e4f;

const Operator& gated() {
  return find_operator("gated_delta_rule");
}

const Operator& gated_normalized() {
  return find_operator("gated_delta_rule", "normalize-keys");
}

/// Runs every stage that supports the problem and expects its outputs to be close to the double reference.
/// @return how many stages ran
int expect_match(const Problem& problem, const Layout& layout = {}, Rounding rounding = Rounding::usual,
                 const Operator& definition = gated()) {
  References references(definition, problem);
  int ran = 0;
  for (const Stage& stage : definition.stages()) {
    if (!why_not(definition, stage, problem, layout).empty()) continue;
    SCOPED_TRACE(stage.name);
    ++ran;
    expect_right(definition, stage, problem, references.of(stage), rounding, layout);
  }
  return ran;
}

constexpr int kWithoutTensorCores = 4, kOnCpu = 2;

/// Stages that support a width of the tensor cores: all, unless the GPU is older than Hopper.
int all_stages(std::int64_t Dk = 128) {
  return warpgroup_products_missing().empty() && Dk <= 128 ? 10 : 5;
}

/// The same if keys are to be normalised, which `cluster`, `one_block`, `zero_starts` and `three_blocks` do not do.
int normalizing_stages() {
  return std::min(all_stages(), 6);
}

/// The same on a drawn problem; `stages` of them must run.
void expect_shape(int stages, std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv,
                  std::int64_t C = 64, const Layout& layout = {}, const Operator& definition = gated()) {
  SCOPED_TRACE(definition.label() + " L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " +
               std::to_string(Dv) + ", C " + std::to_string(C));
  EXPECT_EQ(expect_match(drawn(B, H, L, Dk, Dv, C, definition), layout, Rounding::usual, definition), stages);
}

TEST(GatedNeighboursTest, NoGatesAreDeltaRuleAndNothingToReplaceIsSimpleGla) {
  const Demonstration shown = gated_delta_rule::matches_neighbours();
  EXPECT_TRUE(shown.passed) << shown.text;
}

// Stage for stage: with g = 0 the stages' outputs are those that `delta_rule` should have.
TEST(GatedNeighboursTest, WithoutGatesEveryStageIsDeltaRule) {
  Problem problem = drawn(1, 2, 100, 48, 32, 64, gated());
  fill(problem.inputs.at("g"), 0);
  Problem ungated = drawn(1, 2, 100, 48, 32);
  for (auto& [name, tensor] : ungated.inputs) tensor = problem.inputs.at(name).to(Dtype::fp32);
  for (const Stage& stage : gated().stages()) {
    if (!why_not(gated(), stage, problem).empty()) continue;  // a GPU before Hopper
    SCOPED_TRACE(stage.name);
    const Outputs truth =
        evaluate_reference(delta_rule_operator(), ungated, is_bf16(stage) ? Dtype::bf16 : Dtype::fp32);
    expect_close(evaluate(gated(), stage, problem), truth, tolerance_of(stage, problem.sizes));
  }
}

class GatedGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(GatedGoldenTest, EveryStageAgrees) {
  const std::string path = std::string(GOLDEN_FOLDER "/") + GetParam() + ".safetensors";
  const Problem problem = make_problem(gated(), {.input_file = path});
  const SafetensorsFile file(path);
  Outputs expected;
  for (const char* name : {"o", "final_state"}) expected.insert_or_assign(name, file.read(name));
  int ran = 0;
  for (const Stage& stage : gated().stages()) {
    SCOPED_TRACE(stage.name);
    if (!why_not(gated(), stage, problem).empty()) continue;
    ++ran;
    expect_close(evaluate(gated(), stage, problem), expected, is_bf16(stage) ? 2e-2 : 1e-5);
  }
  EXPECT_EQ(ran, problem.sizes.at("Dk") % 16 == 0 ? all_stages() : kWithoutTensorCores);
}

INSTANTIATE_TEST_SUITE_P(FlashLinearAttention, GatedGoldenTest,
                         testing::Values("gated_delta_rule", "gated_delta_rule_d64", "gated_delta_rule_len1",
                                         "gated_delta_rule_strong"),
                         [](const auto& info) { return std::string(info.param); });

// Few threads, odd everything: for ThreadSanitizer, too.
TEST(GatedShapesTest, Small) {
  expect_shape(kWithoutTensorCores, 1, 1, 66, 5, 3);
  expect_shape(kWithoutTensorCores, 2, 1, 9, 33, 2, 4, {.heads_inside = true, .row_padding = 1});
  expect_shape(all_stages(), 1, 1, 66, 16, 16);
}

TEST(GatedShapesTest, Lengths) {
  for (const std::int64_t L : {1, 15, 17, 63, 64, 65, 130}) {
    expect_shape(all_stages(), 1, 2, L, 48, 32, 16);
    expect_shape(kWithoutTensorCores, 1, 1, L, 40, 3, 32);
  }
}

TEST(GatedShapesTest, AThousand) {
  expect_shape(all_stages(), 1, 1, 1000, 16, 16);
}

TEST(GatedShapesTest, Widths) {
  for (const std::int64_t Dk : {16, 80, 144, 256}) expect_shape(all_stages(Dk), 1, 1, 70, Dk, 80);
  for (const std::int64_t Dk : {1, 31, 129}) expect_shape(kWithoutTensorCores, 1, 1, 33, Dk, 33);
  for (const std::int64_t Dk : {257, 1024}) expect_shape(kOnCpu + 1, 1, 2, 5, Dk, 12);
}

TEST(GatedShapesTest, ChunkLengths) {
  for (const std::int64_t C : {1, 7, 99, 100, 101, 1000000}) expect_shape(kWithoutTensorCores, 1, 2, 100, 12, 9, C);
}

TEST(GatedShapesTest, Strides) {
  for (const bool heads_inside : {false, true}) {
    expect_shape(all_stages(), 2, 2, 67, 32, 48, 32, {.heads_inside = heads_inside, .row_padding = 8});
    expect_shape(kWithoutTensorCores, 2, 2, 67, 32, 48, 32, {.heads_inside = heads_inside, .row_padding = 3});
  }
}

TEST(GatedNormalizeTest, Shapes) {
  for (const std::int64_t L : {1, 65}) {
    expect_shape(normalizing_stages(), 1, 2, L, 64, 32, 16, {}, gated_normalized());
    expect_shape(kWithoutTensorCores, 1, 2, L, 31, 20, 64, {}, gated_normalized());
  }
}

TEST(GatedNormalizeTest, KeysOfAnyLength) {
  for (const float factor : {0.0f, 0x1p-30f, 0x1p30f}) {
    SCOPED_TRACE(factor);
    Problem problem = drawn(1, 1, 70, 32, 48, 64, gated_normalized());
    for (float& x : problem.inputs.at("k").elements<float>()) x *= factor;
    EXPECT_EQ(expect_match(problem, {}, Rounding::usual, gated_normalized()), normalizing_stages());
  }
}

/// The gate's logarithm at a position; u is uniform in (0, 1), `drawn` what the operator has drawn.
using Gate = std::function<float(std::int64_t t, double u, float drawn)>;

struct Pattern {
  const char* name;
  Gate gate;
};

const Pattern kPatterns[] = {
    {"StrongEverywhere", [](auto, double, float) { return kStrong; }},
    {"StrongInHalf", [](auto, double u, float drawn) { return u < 0.5 ? kStrong : drawn; }},
    {"StrongBesideZero", [](auto t, double, float) { return t % 2 == 1 ? kStrong : 0.0f; }},
    {"ZeroOrStrong", [](auto, double u, float) { return u < 0.1 ? kStrong : 0.0f; }},
    {"AllButTheLastStrong", [](auto t, double, float) { return t % 16 < 14 ? kStrong : -0.01f; }},
    {"FirstOfEachChunkStrong", [](auto t, double, float drawn) { return t % 64 == 0 ? kStrong : drawn; }},
    {"LastOfEachChunkStrong", [](auto t, double, float drawn) { return t % 64 == 63 ? kStrong : drawn; }},
    {"StrongInEverySecondChunk", [](auto t, double, float drawn) { return t / 64 % 2 == 1 ? kStrong : drawn; }},
    // A chunk's gates multiply to a little more than 2^-100, and to a little less in the second one (`one_block`).
    {"AtTheEdgeOfStrong", [](auto t, double, float) { return t / 64 == 1 ? -1.09f : -1.08f; }},
    {"AllStrengths", [](auto, double u, float) { return -float(std::pow(10.0, 14 * u - 10)); }},
    {"AsStrongAsFloatGets", [](auto, double u, float drawn) { return u < 0.2 ? -3e38f : drawn; }},
};

class GatedGatesTest : public testing::TestWithParam<Pattern> {};

TEST_P(GatedGatesTest, EveryStageIsRight) {
  Problem problem = drawn(1, 2, 130, 48, 32, 64, gated());
  const auto g = problem.inputs.at("g").elements<float>();
  const Random random(1, "pattern");
  for (std::size_t i = 0; i < g.size(); ++i) {
    g[i] = GetParam().gate(std::int64_t(i % 130), random.uniform(i), g[i]);
  }
  EXPECT_EQ(expect_match(problem), all_stages());
}

INSTANTIATE_TEST_SUITE_P(Patterns, GatedGatesTest, testing::ValuesIn(kPatterns),
                         [](const auto& info) { return std::string(info.param.name); });

// A weak gate behind many strong ones must be right to more digits than bf16 has.
TEST(GatedNumbersTest, WeakGatesBehindStrongOnesKeepTheirDigits) {
  Problem weak = drawn(1, 1, 64, 16, 16, 64, gated());
  const auto g = weak.inputs.at("g").elements<float>();
  for (std::size_t t = 0; t < g.size(); ++t) g[t] = t % 16 < 14 ? kStrong : -0.5f;
  fill(weak.inputs.at("q"), 1);
  fill(weak.inputs.at("k"), 0.25f);
  fill(weak.inputs.at("v"), 1);
  fill(weak.inputs.at("beta"), 0.5f);
  fill(weak.inputs.at("initial_state"), 1);
  const Outputs truth = evaluate_reference(gated(), weak);
  for (const Stage& stage : gated().stages()) {
    if (!why_not(gated(), stage, weak).empty()) continue;  // a GPU before Hopper
    const Comparison c = compare(evaluate(gated(), stage, weak).at("o"), truth.at("o"));
    EXPECT_TRUE(c.within(is_bf16(stage) ? 3e-3 : 1e-5)) << stage.name << ": " << describe(c, "o");
  }
}

TEST(GatedNumbersTest, KeysThatAreAlike) {
  for (const double cosine : {0.9, 1.0}) {
    for (const float beta : {0.99f, 1.0f}) {
      for (const float gate : {0.0f, -0.01f, -1.0f}) {
        SCOPED_TRACE("cosine " + std::to_string(cosine) + ", beta " + std::to_string(beta) + ", g " +
                     std::to_string(gate));
        Problem problem = drawn(1, 1, 200, 32, 16, 64, gated());
        correlate(problem, cosine);
        fill(problem.inputs.at("beta"), beta);
        fill(problem.inputs.at("g"), gate);
        EXPECT_EQ(expect_match(problem, {}, Rounding::amplified), all_stages());
      }
    }
  }
}

// Nothing is written: the state only fades, and without gates it stays, to the last bit.
// The decay of a segment and E: gates that leave something of a state after several chunks, and some that do not.
TEST(GatedNumbersTest, SegmentsAreAsExactAsOneWalk) {
  for (const float factor : {0.0f, 1.0f / 1024, 1.0f / 64, 1.0f}) {
    SCOPED_TRACE("gates times " + std::to_string(factor));
    Problem problem = drawn(1, 1, 1000, 64, 64, 64, gated());
    if (!why_not(gated(), find_stage(gated(), "segments"), problem).empty()) GTEST_SKIP() << "not on Hopper";
    for (float& g : problem.inputs.at("g").elements<float>()) g *= factor;
    const Outputs truth = evaluate_reference(gated(), problem, Dtype::bf16);
    const auto error = [&](const char* stage, const char* output) {
      return compare(evaluate(gated(), find_stage(gated(), stage), problem).at(output), truth.at(output)).error;
    };
    for (const char* output : {"o", "final_state"}) {
      EXPECT_LE(error("segments", output), 1.1 * error("three_blocks", output)) << output;
    }
  }
}

TEST(GatedNumbersTest, BetaOfZeroWritesNothing) {
  Problem problem = drawn(1, 2, 130, 48, 32, 64, gated());
  fill(problem.inputs.at("beta"), 0);
  fill(problem.inputs.at("g"), -0.01f);
  EXPECT_EQ(expect_match(problem), all_stages());
  fill(problem.inputs.at("g"), 0);
  for (const Stage& stage : gated().stages()) {
    if (!why_not(gated(), stage, problem).empty()) continue;  // a GPU before Hopper
    const Outputs outputs = evaluate(gated(), stage, problem);
    EXPECT_TRUE(std::ranges::equal(outputs.at("final_state").elements<float>(),
                                   problem.inputs.at("initial_state").elements<float>()))
        << stage.name;
  }
}

TEST(GatedNumbersTest, BetaOfZeroAndOne) {
  Problem problem = drawn(1, 2, 130, 48, 32, 64, gated());
  const auto beta = problem.inputs.at("beta").elements<float>();
  for (std::size_t t = 0; t < beta.size(); ++t) beta[t] = float(t % 3 != 0);
  EXPECT_EQ(expect_match(problem), all_stages());
}

// Keys longer than 1: without gates the state would grow, with these it fades faster than it grows, or grows hardly.
// T must not contain more of what would grow than numbers can have; in a chunk that is not strong `one_block` has it.
TEST(GatedNumbersTest, GatesTameKeysThatAreTooLong) {
  for (const float gate : {-2.0f, -1.08f}) {
    SCOPED_TRACE(gate);
    Problem problem = drawn(1, 1, 200, 32, 16, 64, gated());
    correlate(problem, 1);
    for (float& x : problem.inputs.at("k").elements<float>()) x *= 2;
    fill(problem.inputs.at("beta"), 1);
    fill(problem.inputs.at("g"), gate);
    EXPECT_EQ(expect_match(problem, {}, Rounding::amplified), all_stages());
  }
}

TEST(GatedNumbersTest, StatesMayBeAbsent) {
  for (const Operator* definition : {&gated(), &gated_normalized()}) {
    Problem problem = drawn(1, 2, 70, 48, 32, 64, *definition);
    problem.inputs.erase("initial_state");
    EXPECT_EQ(expect_match(problem, {}, Rounding::usual, *definition),
              definition == &gated() ? all_stages() : normalizing_stages());
    for (const Stage& stage : definition->stages()) {
      SCOPED_TRACE(definition->label() + " " + stage.name);
      if (!why_not(*definition, stage, problem).empty()) continue;  // a GPU before Hopper
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

TEST(GatedNumbersTest, OperationsAndMemoryAreCounted) {
  const Sizes sizes{{"B", 2}, {"H", 3}, {"L", 640}, {"Dk", 16}, {"Dv", 32}, {"C", 64}};
  const double positions = 2 * 3 * 640;
  const auto work = [&](const Operator& definition, const char* stage) {
    return definition.work_of(find_stage(definition, stage), sizes);
  };
  EXPECT_EQ(work(gated(), "recurrent").fma_flops / positions, 8 * 16 * 32);
  EXPECT_EQ(work(gated(), "recurrent").exponentials / positions, 1);
  EXPECT_DOUBLE_EQ(work(gated(), "chunkwise").fma_flops, work(delta_rule_operator(), "ut_transform").fma_flops +
                                                             positions * (4 * 32.5 + 6 * 32 + 2 * 16 * 32 / 64.0));
  EXPECT_EQ(work(gated(), "chunkwise").exponentials / positions, 34.5);
  const auto bytes = [](const char* stage, std::int64_t L, std::int64_t Dk) {
    return find_stage(gated(), stage)
        .memory(Call(Sizes{{"B", 2}, {"H", 3}, {"L", L}, {"Dk", Dk}, {"Dv", 32}, {"C", 64}}, 1));
  };
  for (const char* stage : {"tensor_core", "dispatch"}) {
    EXPECT_EQ(bytes(stage, 65, 16), 6 * 2 * (3 * 10 * 16 * 16 * 2 + 3 * 64 * 4)) << "T twice, P, and decays";
  }
  EXPECT_EQ(bytes("dispatch", 65, 15), 4 * 6 * 65 * 2 * (15 + 32)) << "q, k, v and o in fp32";
}

#if TUTORIAL_EMULATOR
TEST(GatedMovedTest, IsWhatIsCounted) {
  for (const Operator* definition : {&gated(), &gated_normalized()}) {
    for (const auto& [L, Dk, Dv] : {std::array<std::int64_t, 3>{130, 128, 80}, {1, 16, 16}, {65, 144, 32}}) {
      SCOPED_TRACE(definition->label() + " L " + std::to_string(L));
      const Problem problem = drawn(1, 2, L, Dk, Dv, 64, *definition);
      for (const Stage& stage : definition->stages()) {
        if (!stage.bytes_moved || !why_not(*definition, stage, problem).empty()) continue;
        StageTensors tensors(*definition, problem, stage.processor, storage_of(stage), Dtype::fp32);
        for (const Call& call : {tensors.call(), tensors.graph_call()}) {
          reset_kernel_counts();
          stage.run(call);
          const KernelCounts counts = kernel_counts();
          EXPECT_EQ(double(stage.bytes_moved(call)), counts.bytes_read + counts.bytes_written) << stage.name;
        }
      }
    }
  }
}
#endif

/// What is said of a file with these tensors [1, 2, 3].
std::string refusal(const Tensor& g, const Tensor& beta) {
  const TemporaryFolder folder;
  const std::string path = folder / "gates.safetensors";
  Tensor ones(Dtype::fp32, {1, 2, 3, 4});  // for q, k and v
  fill(ones, 0.5f);
  write_safetensors(path, {{"q", &ones}, {"k", &ones}, {"v", &ones}, {"g", &g}, {"beta", &beta}}, {});
  try {
    make_problem(gated(), {.input_file = path});
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(GatedInputTest, BadGatesAndShapesAreRefused) {
  Tensor g(Dtype::fp32, {1, 2, 3}), beta(Dtype::fp32, {1, 2, 3});
  fill(g, -0.5f);
  fill(beta, 0.5f);
  EXPECT_EQ(refusal(g, beta), "");
  g.elements<float>()[5] = 0.25f;
  EXPECT_NE(refusal(g, beta).find("g[0, 1, 2] = 0.25: must be at most 0"), std::string::npos) << refusal(g, beta);
  g.elements<float>()[5] = std::nanf("");
  EXPECT_NE(refusal(g, beta).find("g[0, 1, 2]"), std::string::npos) << refusal(g, beta);
  EXPECT_EQ(refusal(g, beta).find('\n'), std::string::npos);
  g.elements<float>()[5] = 0;  // a gate of 1
  EXPECT_EQ(refusal(g, beta), "");
  beta.elements<float>()[4] = 2.25f;
  EXPECT_NE(refusal(g, beta).find("beta[0, 1, 1] = 2.25: must be between 0 and 2"), std::string::npos);
  fill(beta, 0.5f);
  Tensor wide(Dtype::fp32, {1, 2, 3, 4});  // gates of another operator: one for each row of the state
  fill(wide, -0.5f);
  EXPECT_NE(refusal(wide, beta), "");
}

TEST(GatedInputTest, LongKeysAreWarnedOf) {
  Problem problem = drawn(1, 1, 9, 16, 16, 64, gated());
  EXPECT_EQ(gated().note_on(problem), "");
  for (float& x : problem.inputs.at("k").elements<float>()) x *= 3;
  EXPECT_NE(gated().note_on(problem).find("keys are up to 3"), std::string::npos) << gated().note_on(problem);
}

}  // namespace
}  // namespace tutorial
