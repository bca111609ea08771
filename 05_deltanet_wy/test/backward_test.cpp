/// @file
/// The operator's gradients, `--backward`, with and without `--normalize-keys`.

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/test/stages.hpp"
#include "common/chapter/machine.hpp"
#include "common/device/device.hpp"
#include "common/safetensors.hpp"
#include "common/test/gradients.hpp"

namespace tutorial {
namespace {

/// The stages that support every problem of whole fragments.
constexpr int kFewest = 6;

const Operator& backward_operator() {
  return find_operator("delta_rule", "backward");
}

const Operator& normalized_backward_operator() {
  return find_operator("delta_rule", "backward+normalize-keys");
}

/// A drawn problem with a gradient of the final state.
Problem with_final_state(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv,
                         const Operator& definition = backward_operator(), std::int64_t C = 64) {
  Problem problem = drawn(B, H, L, Dk, Dv, C, definition);
  Tensor gradient(Dtype::fp32, {B, H, Dk, Dv});
  normal()(Random(problem.seed, "dfinal_state"), problem.sizes, gradient);
  problem.inputs.insert_or_assign("dfinal_state", std::move(gradient));
  return problem;
}

/// Every stage that supports the problem gives the gradients of the double reference.
/// @param fewest stages that must support it
void expect_match(const Problem& problem, int fewest, const Layout& layout = {}, Rounding rounding = Rounding::usual,
                  const Operator& definition = backward_operator()) {
  References references(definition, problem);
  int ran = 0;
  for (const Stage& stage : definition.stages()) {
    if (!why_not(definition, stage, problem, layout).empty()) continue;
    SCOPED_TRACE(stage.name);
    ++ran;
    expect_right(definition, stage, problem, references.of(stage), rounding, layout);
  }
  EXPECT_GE(ran, fewest);
}

/// delta_rule as its definition says.
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
    double squares = double(delta_rule::kKeyEps);
    for (const double x : k) squares += x * x;
    for (std::size_t d = 0; d < Dk; ++d) {
      if (normalize) k[d] /= std::sqrt(squares);
      for (std::size_t j = 0; j < Dv; ++j) delta[j] -= k[d] * S[d * Dv + j];
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

TEST(BackwardTest, TheReferenceIsTheGradient) {
  const Problem problem = with_final_state(2, 2, 13, 5, 3);
  expect_gradients(backward_operator(), problem,
                   [&](const Doubles& inputs) { return forward(inputs, problem, false); });
}

TEST(BackwardTest, TheReferenceIsTheGradientWithNormalizedKeys) {
  const Problem problem = with_final_state(2, 2, 13, 5, 3, normalized_backward_operator());
  expect_gradients(normalized_backward_operator(), problem,
                   [&](const Doubles& inputs) { return forward(inputs, problem, true); });
}

TEST(BackwardTest, Small) {
  expect_match(with_final_state(1, 1, 66, 16, 32), kFewest);
}

class BackwardLengthsTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(BackwardLengthsTest, AreAllRight) {
  expect_match(with_final_state(1, 2, GetParam(), 16, 48), kFewest);
}

INSTANTIATE_TEST_SUITE_P(AroundAChunk, BackwardLengthsTest, testing::Values(1, 15, 17, 63, 64, 65, 130));

TEST(BackwardTest, ShapesOfWidths) {
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{5, 3}, {40, 65}, {72, 16}}) {
    SCOPED_TRACE("Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    expect_match(with_final_state(2, 1, 70, Dk, Dv), 3);
  }
}

TEST(BackwardTest, ShapesOfStrides) {
  for (const std::int64_t padding : {3, 8}) {
    SCOPED_TRACE(padding);
    expect_match(with_final_state(2, 2, 67, 32, 64), 3, {.heads_inside = true, .row_padding = padding});
  }
}

TEST(BackwardTest, ShapesOfChunks) {
  for (const std::int64_t C : {1, 7, 100, 1000}) {
    SCOPED_TRACE(C);
    const Problem problem = with_final_state(2, 1, 100, 24, 20, backward_operator(), C);
    const Stage& stage = find_stage(backward_operator(), "chunkwise");
    expect_close(evaluate(backward_operator(), stage, problem), evaluate_reference(backward_operator(), problem),
                 tolerance_of(stage, problem.sizes));
  }
}

TEST(BackwardTest, ShapesWithNormalizedKeys) {
  for (const auto& [L, Dk, Dv] : {std::array<std::int64_t, 3>{1, 5, 3}, {65, 40, 24}, {100, 64, 32}}) {
    SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk));
    expect_match(with_final_state(2, 1, L, Dk, Dv, normalized_backward_operator()), 3, {}, Rounding::usual,
                 normalized_backward_operator());
  }
}

// The gradient for a normalised key is at right angles to it: a longer key changes nothing. (eps is too small to see.)
TEST(BackwardTest, ANormalizedKeyHasNoGradientAlongItself) {
  const Problem problem = with_final_state(1, 2, 40, 24, 16, normalized_backward_operator());
  const Outputs gradients = evaluate_reference(normalized_backward_operator(), problem);
  const auto dk = gradients.at("dk").elements<float>(), k = problem.inputs.at("k").elements<float>();
  for (std::size_t row = 0; row < k.size(); row += 24) {
    double along = 0, lengths = 0;
    for (std::size_t d = row; d < row + 24; ++d) {
      along += double(dk[d]) * double(k[d]);
      lengths += std::abs(double(dk[d]) * double(k[d]));
    }
    EXPECT_LT(std::abs(along), 1e-6 * lengths);
  }
}

TEST(BackwardNumbersTest, BetaOfZeroAndOne) {
  Problem problem = with_final_state(1, 2, 70, 32, 48);
  const auto beta = problem.inputs.at("beta").elements<float>();
  for (std::size_t t = 0; t < beta.size(); ++t) beta[t] = t % 3 == 0 ? 0.0f : t % 3 == 1 ? 1.0f : 1e-38f;
  expect_match(problem, kFewest);
  std::ranges::fill(beta, 1.0f);
  expect_match(problem, kFewest);
  std::ranges::fill(beta, 0.0f);
  expect_match(problem, kFewest);
}

// Where beta is 0, nothing is written and dv is 0, but dbeta tells what writing would have done.
TEST(BackwardNumbersTest, BetaOfZeroHasAGradient) {
  Problem problem = with_final_state(1, 1, 66, 16, 16);
  std::ranges::fill(problem.inputs.at("beta").elements<float>(), 0.0f);
  for (const Stage& stage : backward_operator().stages()) {
    const Outputs outputs = evaluate(backward_operator(), stage, problem);
    for (const float x : outputs.at("dv").elements<float>()) EXPECT_LT(std::abs(x), 1e-7f) << stage.name;
    for (const float x : outputs.at("dbeta").elements<float>()) EXPECT_NE(x, 0.0f) << stage.name;
  }
}

TEST(BackwardNumbersTest, KeysThatAreAlike) {
  for (const double cosine : {0.9, 1.0}) {
    SCOPED_TRACE(cosine);
    Problem problem = with_final_state(1, 1, 130, 64, 64);
    correlate(problem, cosine);
    fill(problem.inputs.at("beta"), cosine < 1 ? 0.9f : 0.99f);
    expect_match(problem, kFewest, {}, Rounding::amplified);
  }
}

TEST(BackwardNumbersTest, KeysOfZeros) {
  for (const Operator* definition : {&backward_operator(), &normalized_backward_operator()}) {
    Problem problem = with_final_state(1, 1, 66, 32, 16, *definition);
    const auto k = problem.inputs.at("k").elements<float>();
    for (const std::size_t t : {0, 15, 16, 64, 65}) std::fill_n(k.begin() + std::ptrdiff_t(t * 32), 32, 0.0f);
    expect_match(problem, 3, {}, Rounding::usual, *definition);
  }
}

TEST(BackwardNumbersTest, KeysOfAnyLength) {
  for (const float factor : {0x1p-30f, 0x1p-9f, 0x1p30f}) {
    SCOPED_TRACE(factor);
    Problem problem = with_final_state(1, 1, 70, 32, 48, normalized_backward_operator());
    for (float& x : problem.inputs.at("k").elements<float>()) x *= factor;
    expect_match(problem, 3, {}, Rounding::usual, normalized_backward_operator());
  }
}

TEST(BackwardDispatchTest, CopiesWhereItMust) {
  const auto note = [](const Problem& problem, const Operator& definition) {
    const Stage& stage = find_stage(definition, "dispatch");
    StageTensors tensors(definition, problem, stage.processor, storage_of(stage), Dtype::fp32);
    return stage.unsupported(tensors.call()) + stage.note(tensors.call());
  };
  EXPECT_EQ(note(with_final_state(1, 1, 20, 32, 16), backward_operator()), "both_ends");
  EXPECT_EQ(note(with_final_state(1, 1, 130, 32, 16), backward_operator()), "segments");
  EXPECT_EQ(note(with_final_state(1, 1, 130, 33, 16), backward_operator()).substr(0, 20), "segments on copies: ");
  EXPECT_EQ(note(with_final_state(1, 1, 130, 32, 16, normalized_backward_operator()), normalized_backward_operator()),
            "segments on copies: keys are not normalised: on tensor cores only dispatch does that");
  EXPECT_EQ(note(with_final_state(1, 1, 2, 16, 257), backward_operator()).substr(0, 9), "in fp32: ");
  EXPECT_EQ(note(with_final_state(1, 1, 2, 257, 16), backward_operator()).substr(0, 9), "in fp32: ");
  EXPECT_NE(
      why_not(backward_operator(), find_stage(backward_operator(), "dispatch"), with_final_state(1, 1, 2, 1025, 16)),
      "");
}

// The Hopper stages are for widths that a block can hold; longer_chunks is for more pairs of chunks than blocks, and
// segments for no more walks than multiprocessors.
TEST(BackwardDispatchTest, ChoosesByPairsOfChunksAndWidths) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  const auto expect = [](const char* name, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv) {
    SCOPED_TRACE(name);
    const Problem problem = drawn(1, H, L, Dk, Dv, 64, backward_operator());
    const Stage& stage = find_stage(backward_operator(), "dispatch");
    StageTensors tensors(backward_operator(), problem, stage.processor, storage_of(stage), Dtype::fp32);
    EXPECT_EQ(stage.note(tensors.call()), name);
    EXPECT_EQ(stage.memory(tensors.call()), find_stage(backward_operator(), name).memory(tensors.call()));
  };
  const int blocks = multiprocessor_count();
  expect("warpgroups", blocks / 2, 256, 16, 80);
  expect("segments", blocks / 2, 256, 16, 16);
  expect("longer_chunks", blocks / 2 + 1, 256, 16, 16);
  expect("segments", 1, blocks * 128, 16, 16);
  expect("both_ends", blocks / 2 + 1, 256, 144, 16);
}

// As many segments as there are pairs of chunks, then three, of which the last one is shorter.
TEST(BackwardSegmentsTest, AreAsExactAsOneWalk) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  for (const auto& [H, L, Dk, Dv] :
       {std::array<std::int64_t, 4>{2, 63, 64, 64}, {1, 700, 64, 64}, {3, 330, 128, 80}, {11, 520, 16, 80}}) {
    SCOPED_TRACE("H " + std::to_string(H) + ", L " + std::to_string(L));
    expect_segments_match(with_final_state(1, H, L, Dk, Dv), backward_operator(), "longer_chunks");
  }
}

// Absent states are states of zeros, and what nobody asks for is not written.
TEST(BackwardTest, NoStates) {
  Problem problem = drawn(1, 2, 70, 48, 32, 64, backward_operator());
  problem.inputs.erase("initial_state");
  expect_match(problem, kFewest);
  for (const Stage& stage : backward_operator().stages()) {
    SCOPED_TRACE(stage.name);
    StageTensors tensors(backward_operator(), problem, stage.processor, storage_of(stage), Dtype::fp32);
    tensors.poison_outputs();
    stage.run(tensors.graph_call());
    const Outputs outputs = tensors.download_outputs();
    const Outputs expected = evaluate_reference(backward_operator(), problem, stage.dtype);
    for (const char* name : {"dq", "dk", "dv", "dbeta"}) {
      const Comparison c = compare(outputs.at(name), expected.at(name));
      EXPECT_TRUE(c.within(tolerance_of(stage, problem.sizes))) << describe(c, name);
    }
    EXPECT_TRUE(compare(outputs.at("dinitial_state"), outputs.at("dinitial_state")).unwritten);
  }
}

TEST(BackwardTest, EveryStageGivesTheSameBitsTwice) {
  const Problem problem = with_final_state(1, 1, 130, 48, 80);
  for (const Stage& stage : backward_operator().stages()) {
    const Outputs once = evaluate(backward_operator(), stage, problem);
    const Outputs twice = evaluate(backward_operator(), stage, problem);
    for (const auto& [name, tensor] : once) {
      EXPECT_TRUE(std::ranges::equal(tensor.elements<float>(), twice.at(name).elements<float>()))
          << stage.name << " " << name;
    }
  }
}

#if TUTORIAL_EMULATOR
TEST(BackwardMovedTest, IsWhatIsCounted) {
  for (const auto& [L, Dk, Dv] :
       {std::array<std::int64_t, 3>{1, 16, 16}, {77, 80, 48}, {130, 48, 144}, {260, 48, 128}}) {
    SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    const Problem problem = with_final_state(2, 1, L, Dk, Dv);
    for (const Stage& stage : backward_operator().stages()) {
      if (!stage.bytes_moved || !why_not(backward_operator(), stage, problem).empty()) continue;
      StageTensors tensors(backward_operator(), problem, stage.processor, storage_of(stage), Dtype::fp32);
      for (const Call& call : {tensors.call(), tensors.graph_call()}) {
        reset_kernel_counts();
        stage.run(call);
        const KernelCounts counts = kernel_counts();
        EXPECT_EQ(double(stage.bytes_moved(call)), counts.bytes_read + counts.bytes_written) << stage.name;
      }
    }
  }
}
#endif

class BackwardGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(BackwardGoldenTest, EveryStageAgrees) {
  const std::string path = std::string(GOLDEN_FOLDER "/") + GetParam() + ".safetensors";
  const Problem problem = make_problem(backward_operator(), {.input_file = path});
  const SafetensorsFile file(path);
  int ran = 0;
  for (const Stage& stage : backward_operator().stages()) {
    if (!why_not(backward_operator(), stage, problem).empty()) continue;
    SCOPED_TRACE(stage.name);
    ++ran;
    for (const auto& [name, gradient] : evaluate(backward_operator(), stage, problem)) {
      const Comparison c = compare(gradient, file.read(name));
      EXPECT_TRUE(c.within(is_bf16(stage) ? 2e-2 : 1e-5)) << "error " << c.error << ", " << describe(c, name);
    }
  }
  EXPECT_GE(ran, 3);
}

INSTANTIATE_TEST_SUITE_P(FlashLinearAttention, BackwardGoldenTest,
                         testing::Values("delta_rule", "delta_rule_d64", "delta_rule_strong"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tutorial
