/// @file
/// The gradients of kda, `--backward`, with and without `--normalize-keys`.

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "05_deltanet_wy/kda.hpp"
#include "05_deltanet_wy/test/stages.hpp"
#include "common/chapter/machine.hpp"
#include "common/safetensors.hpp"
#include "common/test/gradients.hpp"

namespace tutorial {
namespace {

const Operator& kda_backward() {
  return find_operator("kda", "backward");
}

const Operator& normalized_kda_backward() {
  return find_operator("kda", "backward+normalize-keys");
}

/// A drawn problem with a gradient of the final state.
Problem with_final_state(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv,
                         std::int64_t C = 64, const Operator& definition = kda_backward()) {
  Problem problem = drawn(B, H, L, Dk, Dv, C, definition);
  Tensor gradient(Dtype::fp32, {B, H, Dk, Dv});
  normal()(Random(problem.seed, "dfinal_state"), problem.sizes, gradient);
  problem.inputs.insert_or_assign("dfinal_state", std::move(gradient));
  return problem;
}

/// kda as its definition says.
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
    const double *q = &inputs.at("q")[row * Dk], *v = &inputs.at("v")[row * Dv], *g = &inputs.at("g")[row * Dk];
    std::vector<double> k(&inputs.at("k")[row * Dk], &inputs.at("k")[row * Dk] + Dk), delta(v, v + Dv);
    double squares = double(kda::kKeyEps);
    for (const double x : k) squares += x * x;
    for (std::size_t d = 0; d < Dk; ++d) {
      if (normalize) k[d] /= std::sqrt(squares);
      for (std::size_t j = 0; j < Dv; ++j) {
        S[d * Dv + j] *= std::exp(g[d]);
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

TEST(KdaBackwardTest, TheReferenceIsTheGradient) {
  for (const Operator* definition : {&kda_backward(), &normalized_kda_backward()}) {
    SCOPED_TRACE(definition->label());
    const Problem problem = with_final_state(2, 2, 13, 5, 3, 64, *definition);
    expect_gradients(*definition, problem, [&](const Doubles& inputs) {
      return forward(inputs, problem, definition == &normalized_kda_backward());
    });
  }
}

TEST(KdaBackwardTest, Small) {
  EXPECT_EQ(expect_supporting_stages_match(kda_backward(), with_final_state(1, 1, 18, 5, 3, 16)), 3);
  EXPECT_EQ(expect_supporting_stages_match(kda_backward(), with_final_state(1, 1, 70, 80, 16)), 6);
}

TEST(KdaBackwardTest, Shapes) {
  for (const std::int64_t L : {1, 15, 17, 63, 65, 130}) {
    for (const std::int64_t C : {1, 16, 40, 64}) {
      SCOPED_TRACE("L " + std::to_string(L) + ", C " + std::to_string(C));
      for (const Operator* definition : {&kda_backward(), &normalized_kda_backward()}) {
        const Problem problem = with_final_state(1, 2, L, 24, 17, C, *definition);
        const Stage& stage = find_stage(*definition, "chunkwise");
        expect_close(evaluate(*definition, stage, problem), evaluate_reference(*definition, problem),
                     tolerance_of(stage, problem.sizes));
      }
    }
    SCOPED_TRACE("L " + std::to_string(L));
    EXPECT_EQ(expect_supporting_stages_match(kda_backward(), with_final_state(1, 2, L, 16, 32)), 6);
    EXPECT_EQ(expect_supporting_stages_match(normalized_kda_backward(),
                                             with_final_state(1, 1, L, 40, 17, 64, normalized_kda_backward())),
              3);
    EXPECT_EQ(expect_supporting_stages_match(normalized_kda_backward(),
                                             with_final_state(1, 1, L, 80, 32, 64, normalized_kda_backward())),
              6);
  }
  expect_supporting_stages_match(kda_backward(), with_final_state(2, 3, 67, 24, 20),
                                 {.heads_inside = true, .row_padding = 3});
  expect_supporting_stages_match(kda_backward(), with_final_state(2, 2, 67, 32, 80),
                                 {.heads_inside = true, .row_padding = 8});
  expect_supporting_stages_match(kda_backward(), with_final_state(1, 1, 1000, 16, 8));
  EXPECT_NE(why_not(kda_backward(), find_stage(kda_backward(), "dispatch"), with_final_state(1, 1, 2, 1025, 16)), "");
}

#if TUTORIAL_EMULATOR
TEST(KdaBackwardTest, BytesAreThoseThatAreCounted) {
  for (const Operator* definition : {&kda_backward(), &normalized_kda_backward()}) {
    for (const auto& [L, Dk, Dv] : {std::array<std::int64_t, 3>{1, 16, 16}, {77, 80, 48}, {130, 48, 80}}) {
      SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
      const Problem problem = with_final_state(2, 1, L, Dk, Dv, 64, *definition);
      const Stage& stage = find_stage(*definition, "tensor_core");
      StageTensors tensors(*definition, problem, stage.processor, storage_of(stage), Dtype::fp32);
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

// dg is far smaller than the terms of q . dq and k . dk that contain no gate: only sums without them keep its digits.
TEST(KdaBackwardTest, StrongGatesLeaveTheDigitsOfTheirGradients) {
  Problem problem = with_final_state(1, 2, 130, 16, 16);
  fill(problem.inputs.at("g"), -10);
  EXPECT_EQ(expect_supporting_stages_match(kda_backward(), problem), 6);
  for (const float g : {-1e4f, -std::numeric_limits<float>::infinity()}) {
    fill(problem.inputs.at("g"), g);
    for (const char* stage : {"tensor_core", "warpgroups", "segments"}) {
      const Outputs outputs = evaluate(kda_backward(), find_stage(kda_backward(), stage), problem);
      for (const float x : outputs.at("dg").elements<float>()) EXPECT_EQ(x, 0.0f);
    }
  }
}

// Gates of 0 in one channel beside gates of 1, and keys that are alike, the more so the more often they are made so.
TEST(KdaBackwardTest, HardNumbers) {
  Problem problem = with_final_state(1, 1, 130, 32, 16);
  for (const float beta : {0.0f, 0.99f, 1.0f}) {
    correlate(problem, 0.9);
    fill(problem.inputs.at("beta"), beta);
    for (const float strong : {0.0f, -90.0f, -1e4f}) {
      SCOPED_TRACE("beta " + std::to_string(beta) + ", g " + std::to_string(strong));
      const auto g = problem.inputs.at("g").elements<float>();
      for (std::size_t i = 0; i < g.size(); ++i) g[i] = i % 2 ? strong : -0.01f * float(i % 7);
      References references(kda_backward(), problem);
      for (const Stage& stage : kda_backward().stages()) {
        SCOPED_TRACE(stage.name);
        expect_right(kda_backward(), stage, problem, references.of(stage), Rounding::amplified);
      }
    }
  }
}

// In `warpgroups` a chunk has an anchor, or its gradients go from sub-chunk to sub-chunk; states pass between both.
// Keys that are to be normalised are three times as long as the others.
TEST(KdaBackwardTest, ChunksWithAnAnchorAndWithout) {
  for (const auto& [Dk, Dv, definition] : {std::tuple(16, 32, &kda_backward()),
                                           {128, 64, &kda_backward()},
                                           {80, 128, &kda_backward()},
                                           {128, 64, &normalized_kda_backward()},
                                           {48, 80, &normalized_kda_backward()}}) {
    SCOPED_TRACE(definition->name() + ", Dk " + std::to_string(Dk));
    Problem problem = with_final_state(1, 2, 330, Dk, Dv, 64, *definition);
    if (definition == &normalized_kda_backward()) {
      for (float& x : problem.inputs.at("k").elements<float>()) x *= 3;
      round_to_bf16(problem.inputs.at("k"));
    }
    const auto g = problem.inputs.at("g").elements<float>();
    for (std::size_t i = 0; i < g.size(); ++i) {
      const std::size_t chunk = i / std::size_t(Dk) % 330 / 64, channel = i % std::size_t(Dk);
      if (chunk == 1 && channel == 7) g[i] = -2;  // one channel forgets too much
      if (chunk == 2) g[i] = -1.07f;              // 2^-98.8
      if (chunk == 3) g[i] = -1.09f;              // 2^-100.6
      if (chunk == 4 && channel % 2 == 0) g[i] = 0;
    }
    const auto beta = problem.inputs.at("beta").elements<float>();
    for (std::size_t i = 0; i < beta.size(); i += 5) beta[i] = i % 2 ? 2 : 0;
    const Outputs rounded = evaluate_reference(*definition, problem, Dtype::bf16);
    for (const char* name : {"warpgroups", "segments"}) {
      const Stage& stage = find_stage(*definition, name);
      expect_close(evaluate(*definition, stage, problem), rounded, tolerance_of(stage, problem.sizes));
    }
  }
}

class KdaBackwardSegmentsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  }
  /// Sets the gates of a head, which are g(t, channel).
  template <class Gate>
  static void set_gates(Problem& problem, std::size_t head, Gate g) {
    const auto length = std::size_t(problem.sizes.at("L")), Dk = std::size_t(problem.sizes.at("Dk"));
    const auto gates = problem.inputs.at("g").elements<float>().subspan(head * length * Dk, length * Dk);
    for (std::size_t i = 0; i < gates.size(); ++i) gates[i] = g(i / Dk, i % Dk);
  }
  static void expect_exact(const Problem& problem, double tolerance = 1e-2) {
    expect_segments_match(problem, kda_backward(), "warpgroups", tolerance);
  }
};

// As many segments as there are pairs of chunks, then three, of which the last one is shorter. With gates as they are
// drawn each walk starts from zeros, and with weak ones none does.
TEST_F(KdaBackwardSegmentsTest, Lengths) {
  for (const auto& [H, L, Dk, Dv] :
       {std::array<std::int64_t, 4>{2, 63, 64, 64}, {1, 700, 64, 64}, {1, 330, 128, 80}, {11, 520, 16, 80}}) {
    SCOPED_TRACE("H " + std::to_string(H) + ", L " + std::to_string(L));
    Problem problem = with_final_state(1, H, L, Dk, Dv);
    expect_exact(problem);
    for (float& g : problem.inputs.at("g").elements<float>()) g /= 128;
    expect_exact(problem);
  }
}

// Heads of which each segment, none, and some of them forget what was before; channels that never do beside closed ones.
TEST_F(KdaBackwardSegmentsTest, HeadsAndChannelsThatForgetAndThatDoNot) {
  Problem problem = with_final_state(1, 3, 700, 32, 32);
  set_gates(problem, 1, [](std::size_t, std::size_t d) { return d % 2 ? 0.0f : -1e4f; });
  set_gates(problem, 2, [](std::size_t t, std::size_t) { return t / 256 % 2 ? -0.5f : -0.001f; });
  expect_exact(problem);
  set_gates(problem, 0, [](std::size_t t, std::size_t) { return t % 200 == 7 ? -1e4f : 0.0f; });
  set_gates(problem, 1, [](std::size_t, std::size_t d) { return -0.3f - 0.01f * float(d); });
  for (const float beta : {0.0f, 1.0f}) {
    fill(problem.inputs.at("beta"), beta);
    expect_exact(problem);
  }
}

// beta |k|^2 up to 9: a step may stretch a state by up to 8, so gates are no bound.
TEST_F(KdaBackwardSegmentsTest, LongKeys) {
  for (const float gate : {-0.6f, -3.0f}) {
    Problem problem = with_final_state(1, 1, 450, 32, 32);
    for (float& x : problem.inputs.at("k").elements<float>()) x *= 3;
    round_to_bf16(problem.inputs.at("k"));
    set_gates(problem, 0, [&](std::size_t, std::size_t) { return gate; });
    expect_exact(problem, 2e-2);
  }
}

TEST(KdaBackwardTest, NoStates) {
  Problem problem = drawn(1, 2, 70, 16, 32, 64, kda_backward());
  problem.inputs.erase("initial_state");
  EXPECT_EQ(expect_supporting_stages_match(kda_backward(), problem), 6);
  for (const Stage& stage : kda_backward().stages()) {
    SCOPED_TRACE(stage.name);
    StageTensors tensors(kda_backward(), problem, stage.processor, storage_of(stage), Dtype::fp32);
    tensors.poison_outputs();
    stage.run(tensors.graph_call());
    const Outputs outputs = tensors.download_outputs();
    EXPECT_TRUE(compare(outputs.at("dinitial_state"), outputs.at("dinitial_state")).unwritten);
  }
}

class KdaBackwardGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(KdaBackwardGoldenTest, EveryStageAgrees) {
  const std::string path = std::string(GOLDEN_FOLDER "/") + GetParam() + ".safetensors";
  const Problem problem = make_problem(kda_backward(), {.input_file = path});
  const SafetensorsFile file(path);
  for (const Stage& stage : kda_backward().stages()) {
    SCOPED_TRACE(stage.name);
    if (!why_not(kda_backward(), stage, problem).empty()) continue;
    for (const auto& [name, gradient] : evaluate(kda_backward(), stage, problem)) {
      const Comparison c = compare(gradient, file.read(name));
      EXPECT_TRUE(c.within(is_bf16(stage) ? 2e-2 : 1e-5)) << "error " << c.error << ", " << describe(c, name);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(FlashLinearAttention, KdaBackwardGoldenTest, testing::Values("kda", "kda_d64", "kda_strong"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tutorial
