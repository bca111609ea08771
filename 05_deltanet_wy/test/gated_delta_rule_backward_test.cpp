/// @file
/// The gradients of `gated_delta_rule`, `--backward`, with and without `--normalize-keys`.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "05_deltanet_wy/test/stages.hpp"
#include "common/chapter/machine.hpp"
#include "common/random.hpp"
#include "common/safetensors.hpp"
#include "common/test/gradients.hpp"

namespace tutorial {
namespace {

/// All stages where widths are up to 128, and all but `warpgroups` and `segments`.
int all_stages() {
  return warpgroup_products_missing().empty() ? 6 : 4;
}
constexpr int kAllButWarpgroups = 4;

const Operator& gated_backward(bool normalize = false) {
  return find_operator("gated_delta_rule", normalize ? "backward+normalize-keys" : "backward");
}

/// A drawn problem with a gradient of the final state.
Problem with_final_state(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv,
                         std::int64_t C = 64, const Operator& definition = gated_backward()) {
  Problem problem = drawn(B, H, L, Dk, Dv, C, definition);
  Tensor gradient(Dtype::fp32, {B, H, Dk, Dv});
  const Random random(5, "dfinal_state");
  std::uint64_t i = 0;
  for (float& x : gradient.elements<float>()) x = float(random.normal(i++));
  problem.inputs.insert_or_assign("dfinal_state", std::move(gradient));
  return problem;
}

/// Every stage that supports the problem gives the gradients of the reference.
/// @param fewest stages that must support it
void expect_match(const Problem& problem, const Layout& layout = {}, const Operator& definition = gated_backward(),
                  Rounding rounding = Rounding::usual, int fewest = 3) {
  References references(definition, problem);
  int ran = 0;
  for (const Stage& stage : definition.stages()) {
    if (!why_not(definition, stage, problem, layout).empty()) continue;
    SCOPED_TRACE(definition.label() + " " + stage.name);
    ++ran;
    expect_right(definition, stage, problem, references.of(stage), rounding, layout);
  }
  EXPECT_GE(ran, fewest);
}

/// gated_delta_rule as its definition says.
Doubles forward(const Doubles& inputs, const Problem& problem, bool normalize) {
  const auto size = [&](const char* symbol) { return std::size_t(problem.sizes.at(symbol)); };
  const std::size_t heads = size("B") * size("H"), L = size("L"), Dk = size("Dk"), Dv = size("Dv");
  Doubles outputs;
  auto& o = outputs["o"];
  auto& states = outputs["final_state"];
  states = inputs.at("initial_state");
  o.resize(heads * L * Dv);
  for (std::size_t row = 0; row < heads * L; ++row) {
    double* S = &states[row / L * Dk * Dv];
    const double *q = &inputs.at("q")[row * Dk], *v = &inputs.at("v")[row * Dv];
    std::vector<double> k(&inputs.at("k")[row * Dk], &inputs.at("k")[row * Dk] + Dk), delta(v, v + Dv);
    double squares = double(gated_delta_rule::kKeyEps);
    for (const double x : k) squares += x * x;
    for (std::size_t d = 0; d < Dk; ++d) {
      if (normalize) k[d] /= std::sqrt(squares);
      for (std::size_t j = 0; j < Dv; ++j) {
        S[d * Dv + j] *= std::exp(inputs.at("g")[row]);
        delta[j] -= k[d] * S[d * Dv + j];
      }
    }
    for (std::size_t d = 0; d < Dk; ++d) {
      for (std::size_t j = 0; j < Dv; ++j) {
        S[d * Dv + j] += k[d] * inputs.at("beta")[row] * delta[j];
        o[row * Dv + j] += problem.scale * q[d] * S[d * Dv + j];
      }
    }
  }
  return outputs;
}

TEST(GatedBackwardTest, TheReferenceIsTheGradient) {
  for (const bool normalize : {false, true}) {
    const Problem problem = with_final_state(2, 2, 13, 5, 3, 64, gated_backward(normalize));
    expect_gradients(gated_backward(normalize), problem,
                     [&](const Doubles& inputs) { return forward(inputs, problem, normalize); });
  }
}

TEST(GatedBackwardShapesTest, Small) {
  expect_match(with_final_state(1, 1, 66, 16, 32), {}, gated_backward(), Rounding::usual, all_stages());
}

// A block with 128 columns of Dk, and one with 64 of them and all of a wide Dv; warpgroups with panels of 64 and 128.
TEST(GatedBackwardShapesTest, TilesOfKeys) {
  expect_match(with_final_state(1, 1, 66, 112, 80), {}, gated_backward(), Rounding::usual, all_stages());
  expect_match(with_final_state(1, 1, 65, 80, 144), {}, gated_backward(), Rounding::usual, kAllButWarpgroups);
  expect_match(with_final_state(1, 1, 65, 144, 16), {}, gated_backward(), Rounding::usual, kAllButWarpgroups);
  expect_match(with_final_state(1, 1, 65, 144, 16, 64, gated_backward(true)), {}, gated_backward(true));
}

TEST(GatedBackwardShapesTest, LengthsAndChunks) {
  for (const std::int64_t L : {1, 15, 17, 63, 65, 130}) {
    SCOPED_TRACE(L);
    expect_match(with_final_state(1, 2, L, 16, 48, L % 2 == 0 ? 16 : 64), {}, gated_backward(), Rounding::usual,
                 all_stages());
  }
  for (const std::int64_t C : {1, 7, 100, 1000}) {
    const bool is_narrow = C == 7;
    const Problem problem = with_final_state(2, 1, 100, is_narrow ? 1 : 24, is_narrow ? 1 : 20, C);
    const Stage& stage = find_stage(gated_backward(), "chunkwise");
    expect_close(evaluate(gated_backward(), stage, problem), evaluate_reference(gated_backward(), problem),
                 tolerance_of(stage, problem.sizes));
  }
}

TEST(GatedBackwardShapesTest, WidthsAndStrides) {
  for (const auto& [Dk, Dv] : {std::array<std::int64_t, 2>{5, 3}, {5, 33}, {72, 16}}) {
    expect_match(with_final_state(2, 1, 70, Dk, Dv));
    expect_match(with_final_state(2, 2, 67, Dk, Dv, 32), {.heads_inside = true, .row_padding = 3});
  }
}

TEST(GatedBackwardShapesTest, NormalizedKeys) {
  for (const std::int64_t L : {1, 65}) {
    expect_match(with_final_state(1, 2, L, 20, 12, 64, gated_backward(true)), {}, gated_backward(true));
    expect_match(with_final_state(1, 1, L, 80, 16, 64, gated_backward(true)), {}, gated_backward(true), Rounding::usual,
                 all_stages());
  }
  for (const float factor : {0x1p-30f, 0x1p30f}) {
    Problem problem = with_final_state(1, 1, 70, 32, 48, 64, gated_backward(true));
    for (float& x : problem.inputs.at("k").elements<float>()) x *= factor;
    expect_match(problem, {}, gated_backward(true), Rounding::usual, all_stages());
  }
}

// Without gates the gradients are those of numbers that are not multiplied: with g = 0, dg alone knows of gates.
TEST(GatedBackwardNumbersTest, HardGatesAndBetas) {
  Problem problem = with_final_state(1, 2, 130, 16, 12);
  const auto g = problem.inputs.at("g").elements<float>(), beta = problem.inputs.at("beta").elements<float>();
  const std::vector<float> layer(g.begin(), g.end());
  const Random random(1, "pattern");
  using Pattern = float (*)(std::size_t t, double uniform, float drawn);
  for (const Pattern pattern : {Pattern([](std::size_t t, double, float) { return t % 2 == 1 ? -1e4f : 0.0f; }),
                                Pattern([](std::size_t, double u, float) { return u < 0.1 ? -1e4f : 0.0f; }),
                                Pattern([](std::size_t t, double, float x) { return t % 64 == 0 ? -1e4f : x; }),
                                Pattern([](std::size_t, double, float) { return 0.0f; })}) {
    for (std::size_t i = 0; i < g.size(); ++i) g[i] = pattern(i, random.uniform(i), layer[i]);
    expect_match(problem);
  }
  for (std::size_t i = 0; i < beta.size(); ++i) beta[i] = float(i % 2);
  expect_match(problem);
  correlate(problem, 0.9);
  expect_match(problem);
  fill(problem.inputs.at("beta"), 0);
  expect_match(problem);
  fill(problem.inputs.at("beta"), 0.99f);
  correlate(problem, 1);
  expect_match(problem, {}, gated_backward(), Rounding::amplified);
}

// dg is far smaller than the terms of q . dq and v . dv that contain no gate: only sums without them keep its digits.
TEST(GatedBackwardNumbersTest, StrongGatesLeaveTheDigitsOfTheirGradients) {
  for (const float g : {-10.0f, -1e4f, -std::numeric_limits<float>::infinity()}) {
    SCOPED_TRACE(g);
    Problem problem = with_final_state(1, 2, 130, 16, 16);
    fill(problem.inputs.at("g"), g);
    if (g > -1e3f) {
      expect_match(problem, {}, gated_backward(), Rounding::usual, all_stages());
    } else {
      for (const char* name : {"tensor_core", "warpgroups", "segments", "dispatch"}) {
        const Outputs outputs = evaluate(gated_backward(), find_stage(gated_backward(), name), problem);
        for (const float x : outputs.at("dg").elements<float>()) EXPECT_LT(std::abs(x), 1e-8f) << name;
      }
    }
  }
}

// dg of a position behind a closed gate has terms from the rest of its pair of chunks alone, and dg of one before it,
// too: a gate closed in either chunk, or at their border, changes neither side's digits.
TEST(GatedBackwardNumbersTest, AClosedGateInAPairOfChunks) {
  for (const std::size_t cut : {30, 64, 100, 128}) {
    SCOPED_TRACE(cut);
    Problem problem = with_final_state(1, 1, 140, 16, 16);
    problem.inputs.at("g").elements<float>()[cut] = -1e4f;
    expect_match(problem, {}, gated_backward(), Rounding::usual, all_stages());
  }
}

class GatedBackwardSegmentsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  }
  /// Sets the gates of a head, which are g(t).
  template <class Gate>
  static void set_gates(Problem& problem, std::size_t head, Gate g) {
    const auto length = std::size_t(problem.sizes.at("L"));
    const auto gates = problem.inputs.at("g").elements<float>().subspan(head * length, length);
    for (std::size_t t = 0; t < length; ++t) gates[t] = g(t);
  }
  static void expect_exact(const Problem& problem, double tolerance = 1e-2) {
    expect_segments_match(problem, gated_backward(problem.parameters.contains("key_eps")), "warpgroups", tolerance);
  }
};

// As many segments as there are pairs of chunks, then three, of which the last one is shorter. Gates as they are drawn,
// with which each walk starts from zeros, and such that none does.
TEST_F(GatedBackwardSegmentsTest, Lengths) {
  for (const auto& [H, L, Dk, Dv] : {std::array<std::int64_t, 4>{2, 1, 64, 64},
                                     {2, 63, 64, 64},
                                     {2, 65, 64, 64},
                                     {1, 700, 64, 64},
                                     {3, 330, 128, 80},
                                     {11, 520, 16, 80}}) {
    SCOPED_TRACE("H " + std::to_string(H) + ", L " + std::to_string(L));
    Problem problem = with_final_state(1, H, L, Dk, Dv);
    expect_exact(problem);
    for (float& g : problem.inputs.at("g").elements<float>()) g /= 128;
    expect_exact(problem);
  }
}

// The gates of 64 positions, and of 128, multiply to just above and just below 2^-24.
TEST_F(GatedBackwardSegmentsTest, GatesOnBothSidesOfTheBound) {
  for (const double whole : {24 * std::log(2.0) / 64, 24 * std::log(2.0) / 128}) {
    for (const double factor : {0.999, 1.001}) {
      SCOPED_TRACE(whole * factor);
      Problem problem = with_final_state(1, 1, 700, 32, 32);
      set_gates(problem, 0, [&](std::size_t) { return float(-whole * factor); });
      expect_exact(problem);
    }
  }
}

// A head that never forgets, with gates of 1 or a closed one here and there, beside heads that do. So some segments
// need their past, and others start from zeros: in one walk, in the other, or in both.
TEST_F(GatedBackwardSegmentsTest, HeadsThatForgetAndHeadsThatDoNot) {
  Problem problem = with_final_state(1, 3, 700, 32, 32);
  set_gates(problem, 1, [](std::size_t) { return 0.0f; });
  expect_exact(problem);
  set_gates(problem, 2, [](std::size_t t) { return t % 200 == 7 ? -1e4f : 0.0f; });
  expect_exact(problem);
  set_gates(problem, 0, [](std::size_t t) { return t / 256 % 2 ? -0.5f : -0.001f; });
  expect_exact(problem);
  for (const float beta : {0.0f, 1.0f}) {
    fill(problem.inputs.at("beta"), beta);
    expect_exact(problem);
  }
}

// beta |k|^2 up to 9: a step may stretch a state by up to 8, so the product of gates is no bound.
TEST_F(GatedBackwardSegmentsTest, LongKeys) {
  for (const float gate : {-0.5f, -3.0f}) {
    Problem problem = with_final_state(1, 1, 450, 32, 32);
    for (float& x : problem.inputs.at("k").elements<float>()) x *= 3;
    round_to_bf16(problem.inputs.at("k"));
    set_gates(problem, 0, [&](std::size_t) { return gate; });
    expect_exact(problem, 2e-2);
  }
}

TEST_F(GatedBackwardSegmentsTest, NormalizedKeysAndAbsentStates) {
  Problem problem = with_final_state(1, 2, 450, 64, 32, 64, gated_backward(true));
  for (float& x : problem.inputs.at("k").elements<float>()) x *= 100;
  round_to_bf16(problem.inputs.at("k"));
  set_gates(problem, 1, [](std::size_t) { return -0.01f; });
  expect_exact(problem);
  problem.inputs.erase("initial_state");
  problem.inputs.erase("dfinal_state");
  expect_exact(problem);
}

TEST_F(GatedBackwardSegmentsTest, DispatchTakesThemWhereHeadsAreFew) {
  const auto note = [](std::int64_t H, std::int64_t L) {
    const Stage& stage = find_stage(gated_backward(), "dispatch");
    const Problem problem = drawn(1, H, L, 16, 16, 64, gated_backward());
    StageTensors tensors(gated_backward(), problem, stage.processor, storage_of(stage), Dtype::fp32);
    return stage.note(tensors.call());
  };
  EXPECT_EQ(note(1, 4096), "segments");
  EXPECT_EQ(note(1, 300), "warpgroups");
  EXPECT_EQ(note(multiprocessor_count() / 2, 4096), "warpgroups");
}

// A gate of nothing separates what comes before it from what comes after: nothing that is read after it has a gradient
// before it.
TEST(GatedBackwardNumbersTest, NothingPassesAGateOfNothing) {
  constexpr std::size_t kLength = 70, kCut = 40, kDv = 12;
  Problem problem = with_final_state(1, 1, kLength, 16, kDv);
  problem.inputs.at("g").elements<float>()[kCut] = -1e4f;
  const auto d_o = problem.inputs.at("do").elements<float>();
  std::fill_n(d_o.begin(), kCut * kDv, 0.0f);
  for (const char* name : {"recurrent", "chunkwise"}) {
    const Outputs outputs = evaluate(gated_backward(), find_stage(gated_backward(), name), problem);
    const auto dv = outputs.at("dv").elements<float>();
    EXPECT_EQ(std::ranges::count(dv.first(kCut * kDv), 0.0f), std::ptrdiff_t(kCut * kDv)) << name;
    EXPECT_NE(dv[kCut * kDv], 0.0f) << name;
    for (const float x : outputs.at("dinitial_state").elements<float>()) EXPECT_EQ(x, 0.0f) << name;
  }
}

TEST(GatedBackwardTest, StatesMayBeAbsent) {
  Problem problem = drawn(1, 2, 70, 16, 32, 64, gated_backward());
  problem.inputs.erase("initial_state");
  expect_match(problem);
  for (const Stage& stage : gated_backward().stages()) {
    const Outputs expected = evaluate_reference(gated_backward(), problem, stage.dtype);
    StageTensors tensors(gated_backward(), problem, stage.processor, storage_of(stage), Dtype::fp32);
    tensors.poison_outputs();
    stage.run(tensors.graph_call());
    const Outputs outputs = tensors.download_outputs();
    for (const char* name : {"dq", "dk", "dv", "dbeta", "dg"}) {
      const Comparison c = compare(outputs.at(name), expected.at(name));
      EXPECT_TRUE(c.within(tolerance_of(stage, problem.sizes))) << stage.name << ": " << describe(c, name);
    }
    EXPECT_TRUE(compare(outputs.at("dinitial_state"), outputs.at("dinitial_state")).unwritten);
  }
}

#if TUTORIAL_EMULATOR
TEST(GatedBackwardMovedTest, IsWhatIsCounted) {
  for (const auto& [L, Dk, Dv] : {std::array<std::int64_t, 3>{1, 16, 16}, {77, 80, 48}, {130, 144, 80}}) {
    SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    const Problem problem = with_final_state(2, 1, L, Dk, Dv);
    for (const char* name : {"tensor_core", "warpgroups"}) {
      SCOPED_TRACE(name);
      const Stage& stage = find_stage(gated_backward(), name);
      if (!why_not(gated_backward(), stage, problem).empty()) continue;
      StageTensors tensors(gated_backward(), problem, stage.processor, storage_of(stage), Dtype::fp32);
      for (const Call& call : {tensors.call(), tensors.graph_call()}) {
        reset_kernel_counts();
        stage.run(call);
        const KernelCounts counts = kernel_counts();
        EXPECT_EQ(double(stage.bytes_moved(call)), counts.bytes_read + counts.bytes_written);
      }
    }
  }
}
#endif

class GatedBackwardGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(GatedBackwardGoldenTest, EveryStageAgrees) {
  const std::string path = std::string(GOLDEN_FOLDER "/") + GetParam() + ".safetensors";
  const Problem problem = make_problem(gated_backward(), {.input_file = path});
  const SafetensorsFile file(path);
  for (const Stage& stage : gated_backward().stages()) {
    if (!why_not(gated_backward(), stage, problem).empty()) continue;
    for (const auto& [name, gradient] : evaluate(gated_backward(), stage, problem)) {
      const Comparison c = compare(gradient, file.read(name));
      EXPECT_TRUE(c.within(is_bf16(stage) ? 2e-2 : 1e-5))
          << stage.name << ": error " << c.error << ", " << describe(c, name);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(FlashLinearAttention, GatedBackwardGoldenTest,
                         testing::Values("gated_delta_rule", "gated_delta_rule_d64", "gated_delta_rule_strong"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tutorial
