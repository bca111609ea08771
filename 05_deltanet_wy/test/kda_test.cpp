/// @file
/// Every stage of kda: golden files, odd shapes, strides, hard numbers, sequences in two calls, bad input.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "05_deltanet_wy/demonstrations/kda_neighbours.hpp"
#include "05_deltanet_wy/kda.hpp"
#include "05_deltanet_wy/test/stages.hpp"
#include "common/chapter/machine.hpp"
#include "common/error.hpp"
#include "common/random.hpp"
#include "common/safetensors.hpp"
#include "common/test/split.hpp"
#include "common/test/temporary_folder.hpp"

namespace tutorial {
namespace {

const Operator& kda_operator() {
  return find_operator("kda");
}

const Operator& normalized_kda() {
  return find_operator("kda", "normalize-keys");
}

Problem drawn_kda(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv, std::int64_t C = 64,
                  const Operator& definition = kda_operator()) {
  return drawn(B, H, L, Dk, Dv, C, definition);
}

/// Runs every stage that supports the problem.
int expect_kda(const Problem& problem, Rounding rounding = Rounding::usual, const Layout& layout = {},
               const Operator& definition = kda_operator()) {
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

TEST(KdaNumbersTest, WithoutGatesItIsTheDeltaRuleAndWithNothingToReplaceGla) {
  const Demonstration shown = kda::matches_delta_rule_and_gla();
  EXPECT_TRUE(shown.passed) << shown.text;
}

class KdaGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(KdaGoldenTest, EveryStageAgrees) {
  const Operator& definition = kda_operator();
  const std::string path = std::string(GOLDEN_FOLDER "/") + GetParam() + ".safetensors";
  const Problem problem = make_problem(definition, {.input_file = path});
  const SafetensorsFile file(path);
  Outputs expected;
  for (const char* name : {"o", "final_state"}) expected.insert_or_assign(name, file.read(name));
  for (const Stage& stage : definition.stages()) {
    SCOPED_TRACE(stage.name);
    const std::string reason = why_not(definition, stage, problem);
    if (is_bf16(stage) && problem.sizes.at("Dk") % 16 != 0 && !reason.empty()) continue;
    ASSERT_EQ(reason, "");
    expect_close(evaluate(definition, stage, problem), expected, is_bf16(stage) ? 2e-2 : 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(FlashLinearAttention, KdaGoldenTest,
                         testing::Values("kda", "kda_d64", "kda_len1", "kda_strong"),
                         [](const auto& info) { return std::string(info.param); });

// Few threads, odd everything: for ThreadSanitizer, too.
TEST(KdaShapesTest, Small) {
  expect_kda(drawn_kda(1, 1, 18, 5, 3, 16));
  expect_kda(drawn_kda(1, 1, 66, 16, 16));
}

TEST(KdaShapesTest, Lengths) {
  for (const std::int64_t L : {1, 2, 15, 16, 17, 63, 64, 65, 130}) {
    for (const auto& [Dk, Dv, C] : {std::array<std::int64_t, 3>{32, 16, 64}, {33, 3, 16}, {72, 40, 50}}) {
      SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", C " + std::to_string(C));
      expect_kda(drawn_kda(1, 2, L, Dk, Dv, C));
    }
  }
  expect_kda(drawn_kda(1, 1, 1000, 16, 16));
}

TEST(KdaShapesTest, Strides) {
  for (const Layout& layout : kOddLayouts) {
    SCOPED_TRACE(name_of(layout));
    expect_kda(drawn_kda(2, 2, 67, 48, 32, 32), Rounding::usual, layout);
  }
}

TEST(KdaSplitTest, TwoCallsAreOne) {
  constexpr std::int64_t L = 130;
  for (const Operator* definition : {&kda_operator(), &normalized_kda()}) {
    const Problem whole = drawn_kda(1, 1, L, 32, 32, 64, *definition);
    for (const std::int64_t middle : {1, 64, 90}) {
      for (const Stage& stage : definition->stages()) {
        SCOPED_TRACE(definition->label() + " " + stage.name + " at " + std::to_string(middle));
        if (!why_not(*definition, stage, whole).empty()) continue;
        const double tolerance = tolerance_of(stage, whole.sizes);
        const Outputs at_once = evaluate(*definition, stage, whole);
        const Outputs first = evaluate(*definition, stage, part_of(whole, 0, middle, whole.inputs.at("initial_state")));
        const Outputs second = evaluate(*definition, stage, part_of(whole, middle, L, first.at("final_state")));
        EXPECT_TRUE(compare(first.at("o"), slice(at_once.at("o"), 0, middle)).within(tolerance));
        EXPECT_TRUE(compare(second.at("o"), slice(at_once.at("o"), middle, L)).within(tolerance));
        EXPECT_TRUE(compare(second.at("final_state"), at_once.at("final_state")).within(tolerance));
      }
    }
  }
}

// Gates of any strength side by side: -1e4 in one channel and 0 in the next, the same turned round in time, all of one
// kind, and a few of -1e4 among the layer's.
TEST(KdaNumbersTest, GatesOfAllStrengths) {
  Problem problem = drawn_kda(1, 1, 130, 32, 16);
  const auto g = problem.inputs.at("g").elements<float>();
  const std::vector<float> layer(g.begin(), g.end());
  const Random random(1, "gates");
  using Pattern = float (*)(std::size_t t, std::size_t d, float layer, double uniform);
  for (const Pattern pattern : {
           Pattern([](std::size_t, std::size_t d, float, double) { return d % 2 ? 0.0f : -1e4f; }),
           Pattern([](std::size_t t, std::size_t d, float, double) { return (t + d) % 2 ? 0.0f : -1e4f; }),
           Pattern([](std::size_t, std::size_t, float, double) { return -1e4f; }),
           Pattern([](std::size_t, std::size_t, float, double) { return -0.0f; }),
           Pattern([](std::size_t, std::size_t, float, double) { return -90.0f; }),
           Pattern([](std::size_t, std::size_t, float x, double u) { return u < 0.02 ? -1e4f : x; }),
           Pattern([](std::size_t, std::size_t, float, double u) { return -float(std::pow(10.0, 8 * u - 4)); }),
           Pattern([](std::size_t, std::size_t d, float x, double) { return d == 3 ? -INFINITY : x; }),
       }) {
    for (std::size_t i = 0; i < g.size(); ++i) g[i] = pattern(i / 32, i % 32, layer[i], random.uniform(i));
    expect_kda(problem);
  }
}

// The ways that `one_anchor` and `cluster` have for a chunk: one anchor, one for each sub-chunk, step by step. The last
// two patterns have chunks, or columns, of different ways next to each other.
TEST(KdaNumbersTest, GatesOnBothSidesOfEachBound) {
  constexpr int kDk = 80;
  Problem problem = drawn_kda(1, 1, 330, kDk, 16);
  const auto g = problem.inputs.at("g").elements<float>();
  const std::vector<float> layer(g.begin(), g.end());
  using Pattern = float (*)(std::size_t t, std::size_t d, float layer);
  for (const Pattern pattern : {
           Pattern([](std::size_t, std::size_t, float) { return -1.08f; }),
           Pattern([](std::size_t, std::size_t, float) { return -1.09f; }),
           Pattern([](std::size_t, std::size_t, float) { return -5.0f; }),
           Pattern([](std::size_t, std::size_t, float) { return -5.1f; }),
           Pattern([](std::size_t t, std::size_t, float x) { return t / 64 % 3 == 1 ? 8 * x : x; }),
           Pattern([](std::size_t, std::size_t d, float x) { return d == 70  ? -7.0f
                                                                    : d == 3 ? -2.0f
                                                                             : x; }),
       }) {
    for (std::size_t i = 0; i < g.size(); ++i) g[i] = pattern(i / kDk, i % kDk, layer[i]);
    expect_kda(problem);
  }
  // The last pattern once more, with keys that are normalised on each of the ways.
  Problem normalized = drawn_kda(1, 1, 130, kDk, 16, 64, normalized_kda());
  const auto gates = normalized.inputs.at("g").elements<float>();
  for (std::size_t i = 0; i < gates.size(); ++i) {
    if (i / kDk < 64) gates[i] = i % kDk == 70 ? -7.0f : i % kDk == 3 ? -2.0f : gates[i];
  }
  expect_kda(normalized, Rounding::usual, {}, normalized_kda());
}

TEST(KdaNumbersTest, KeysThatAreAlike) {
  for (const double cosine : {0.9, 1.0}) {
    for (const float beta : {0.5f, 0.99f, 1.0f}) {
      for (const float gate : {0.0f, -0.01f, -1.0f}) {
        SCOPED_TRACE("cosine " + std::to_string(cosine) + ", beta " + std::to_string(beta) + ", g " +
                     std::to_string(gate));
        Problem problem = drawn_kda(1, 1, 130, 64, 16);
        correlate(problem, cosine);
        fill(problem.inputs.at("beta"), beta);
        for (float& g : problem.inputs.at("g").elements<float>()) g *= -gate;
        expect_kda(problem, Rounding::amplified);
      }
    }
  }
}

TEST(KdaNumbersTest, BetaOfZeroAndOne) {
  Problem problem = drawn_kda(1, 2, 80, 32, 16);
  const auto beta = problem.inputs.at("beta").elements<float>();
  const Random random(1, "pattern");
  for (std::size_t i = 0; i < beta.size(); ++i) beta[i] = float(random.uniform(i) < 0.5);
  expect_kda(problem);
  fill(problem.inputs.at("beta"), 1);
  expect_kda(problem);
  fill(problem.inputs.at("beta"), 0);
  expect_kda(problem);
  fill(problem.inputs.at("g"), 0);  // nothing fades and nothing is written
  for (const Stage& stage : kda_operator().stages()) {
    if (!why_not(kda_operator(), stage, problem).empty()) continue;
    EXPECT_TRUE(std::ranges::equal(evaluate(kda_operator(), stage, problem).at("final_state").elements<float>(),
                                   problem.inputs.at("initial_state").elements<float>()))
        << stage.name;
  }
}

TEST(KdaNumbersTest, NoInitialStateIsAStateOfZerosAndNoFinalStateIsWritten) {
  Problem zeros = drawn_kda(1, 2, 70, 32, 16), none = drawn_kda(1, 2, 70, 32, 16);
  fill(zeros.inputs.at("initial_state"), 0);
  none.inputs.erase("initial_state");
  expect_kda(none);
  for (const Stage& stage : kda_operator().stages()) {
    SCOPED_TRACE(stage.name);
    if (!why_not(kda_operator(), stage, none).empty()) continue;
    const Outputs expected = evaluate(kda_operator(), stage, zeros);
    expect_close(evaluate(kda_operator(), stage, none), expected, 1e-6);
    StageTensors placement(kda_operator(), none, stage.processor, storage_of(stage), Dtype::fp32);
    placement.poison_outputs();
    stage.run(placement.graph_call());
    const Outputs outputs = placement.download_outputs();
    EXPECT_TRUE(compare(outputs.at("o"), expected.at("o")).within(1e-6));
    EXPECT_TRUE(compare(outputs.at("final_state"), outputs.at("final_state")).unwritten);
  }
}

TEST(KdaNormalizeKeysTest, KeysOfAnyLength) {
  for (const float factor : {1.0f, 0x1p-9f, 0x1p30f}) {
    SCOPED_TRACE(factor);
    Problem problem = drawn_kda(1, 1, 70, 32, 48, 64, normalized_kda());
    for (float& x : problem.inputs.at("k").elements<float>()) x *= factor;
    std::fill_n(problem.inputs.at("k").elements<float>().begin() + 17 * 32, 32, 0.0f);
    expect_kda(problem, Rounding::usual, {}, normalized_kda());
  }
  expect_kda(drawn_kda(1, 2, 67, 33, 5, 16, normalized_kda()), Rounding::usual, {}, normalized_kda());
}

// What dispatch chooses. The sizes come without strides: rows of unknown alignment count as aligned, but bulk copies
// cannot take them.
TEST(KdaDispatchTest, TakesWhatTheTensorCoresDoNot) {
  const auto choice = [](int L, int Dk, int Dv) {
    kda::Bf16Arguments a{};
    a.B = a.H = 1, a.L = L, a.Dk = Dk, a.Dv = Dv;
    const std::string unsupported = kda::dispatch_unsupported(a);
    return unsupported.empty() ? kda::dispatch_note(a) : unsupported;
  };
  EXPECT_EQ(choice(70, 128, 512), "specialized warps, 32 columns per block");
  EXPECT_EQ(choice(70, 24, 64).find("recurrent_gpu in fp32: "), 0u);
  EXPECT_EQ(choice(70, 144, 64).find("recurrent_gpu in fp32: Dk > 128"), 0u);
  EXPECT_EQ(choice(70, 257, 64).find("wide_keys in fp32: "), 0u);
  EXPECT_EQ(choice(70, 1025, 64).find("Dk > 1024"), 0u);
}

#if TUTORIAL_EMULATOR
// Blocks of 64 columns, which the emulator's 132 multiprocessors would ask for with many heads only. With a single
// multiprocessor dispatch can still estimate clusters of two blocks.
TEST(KdaDispatchTest, WideBlocks) {
  setenv("EMULATOR_MULTIPROCESSORS", "1", 1);
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{64, 80}, {80, 48}, {128, 144}}) {
    const Problem problem = drawn_kda(1, 1, 130, Dk, Dv);
    for (const char* label : {"specialized_warps", "dispatch"}) {
      const Stage& stage = find_stage(kda_operator(), label);
      expect_close(evaluate(kda_operator(), stage, problem), evaluate_reference(kda_operator(), problem, Dtype::bf16),
                   tolerance_of(stage, problem.sizes));
    }
  }
  unsetenv("EMULATOR_MULTIPROCESSORS");
}

// The bytes of kda/dispatch/requirements.cu are those that the emulator counts.
TEST(KdaNumbersTest, BytesMovedAreWhatIsCounted) {
  for (const Operator* definition : {&kda_operator(), &normalized_kda()}) {
    for (const auto& [L, Dk, Dv] : {std::array<std::int64_t, 3>{1, 16, 16}, {77, 80, 80}, {130, 33, 5}}) {
      const Problem problem = drawn_kda(1, 2, L, Dk, Dv, 64, *definition);
      for (const Stage& stage : definition->stages()) {
        if (!stage.bytes_moved || !why_not(*definition, stage, problem).empty()) continue;
        StageTensors tensors(*definition, problem, stage.processor, storage_of(stage), Dtype::fp32);
        for (const Call& call : {tensors.call(), tensors.graph_call()}) {
          const double stated = double(stage.bytes_moved(call));
          if (stated < 0) continue;  // in fp32
          reset_kernel_counts();
          stage.run(call);
          const KernelCounts counts = kernel_counts();
          EXPECT_EQ(stated, counts.bytes_read + counts.bytes_written) << stage.name << " L " << L << ", Dk " << Dk;
        }
      }
    }
  }
}
#endif

/// What is said of a file with these g [1, 2, 3, 4] and beta [1, 2, 3].
std::string refusal(const Tensor& g, const Tensor& beta) {
  const TemporaryFolder folder;
  const std::string path = folder / "input.safetensors";
  Tensor ones(Dtype::fp32, {1, 2, 3, 4});  // for q, k and v
  fill(ones, 1.0f);
  write_safetensors(path, {{"q", &ones}, {"k", &ones}, {"v", &ones}, {"g", &g}, {"beta", &beta}}, {});
  try {
    make_problem(kda_operator(), {.input_file = path});
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(InputTest, GatesAboveOneAndBetaOutsideOfZeroToOneAreRefusedByKda) {
  Tensor g(Dtype::fp32, {1, 2, 3, 4}), beta(Dtype::fp32, {1, 2, 3});
  fill(g, -1.0f);
  fill(beta, 0.5f);
  EXPECT_EQ(refusal(g, beta), "");
  g.elements<float>()[1] = 0;
  EXPECT_EQ(refusal(g, beta), "");
  g.elements<float>()[14] = 0.25f;
  EXPECT_NE(refusal(g, beta).find("g[0, 1, 0, 2] = 0.25: must be at most 0"), std::string::npos) << refusal(g, beta);
  g.elements<float>()[14] = NAN;
  EXPECT_NE(refusal(g, beta), "");
  g.elements<float>()[14] = -1;
  beta.elements<float>()[4] = 2.25f;
  EXPECT_NE(refusal(g, beta).find("beta[0, 1, 1] = 2.25: must be between 0 and 2"), std::string::npos)
      << refusal(g, beta);
  const Tensor per_head(Dtype::fp32, {1, 2, 3});
  EXPECT_NE(refusal(per_head, beta), "") << "a gate per head is gated_delta_rule's";
}

TEST(InputTest, LongKeysAreWarnedOfByKda) {
  Problem problem = drawn_kda(1, 2, 20, 48, 16);
  EXPECT_EQ(kda_operator().note_on(problem), "");
  for (float& x : problem.inputs.at("k").elements<float>()) x *= 3;
  EXPECT_NE(kda_operator().note_on(problem).find("keys are up to 3"), std::string::npos);
}

}  // namespace
}  // namespace tutorial
