/// @file
/// The gradients of simple_gla, `--backward`.

#include <algorithm>
#include <cmath>

#include "02_chunkwise/linear_attention_backward.hpp"
#include "04_fused_chunk/simple_gla_backward/cut.hpp"
#include "04_fused_chunk/test/stages.hpp"
#include "common/device/device.hpp"
#include "common/safetensors.hpp"
#include "common/test/gradients.hpp"

namespace tutorial {
namespace {

const Operator& backward_operator() {
  return find_operator("simple_gla", "backward");
}

/// A drawn problem with a gradient of the final state.
Problem problem_of(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv,
                   std::int64_t C = 64) {
  Problem problem = drawn(backward_operator(), B, H, L, Dk, Dv, C);
  Tensor gradient(Dtype::fp32, {B, H, Dk, Dv});
  normal()(Random(problem.seed, "dfinal_state"), problem.sizes, gradient);
  problem.inputs.insert_or_assign("dfinal_state", std::move(gradient));
  return problem;
}

/// Expects the stages that support the problem to be right: dg as the runner asks for, all other gradients within
/// what it asks for of other operators.
/// @param fewest stages that have to support the problem
void expect_match(const Problem& problem, const Layout& layout = {}, int fewest = 6) {
  References references(backward_operator(), problem);
  int ran = 0;
  for (const Stage& stage : backward_operator().stages()) {
    if (!why_not(backward_operator(), stage, problem, layout).empty()) continue;
    SCOPED_TRACE(stage.name);
    ++ran;
    for (const auto& [name, out] : evaluate(backward_operator(), stage, problem, layout)) {
      const Comparison c = compare(name, out, references.of(stage));
      const double others = is_bf16(stage) ? 1e-2 : 1e-5;
      EXPECT_TRUE(c.within(name == "dg" ? tolerance_of(stage, problem.sizes) : others))
          << "error " << c.error << ", " << describe(c, name);
    }
  }
  EXPECT_GE(ran, fewest);
}

/// simple_gla as its definition says.
Doubles forward(const Doubles& inputs, const Problem& problem) {
  const auto size = [&](const char* symbol) { return std::size_t(problem.sizes.at(symbol)); };
  const std::size_t heads = size("B") * size("H"), L = size("L"), Dk = size("Dk"), Dv = size("Dv");
  Doubles outputs;
  auto& o = outputs["o"];
  auto& S = outputs["final_state"];
  S = inputs.at("initial_state");
  o.resize(heads * L * Dv);
  for (std::size_t row = 0; row < heads * L; ++row) {
    double* state = &S[row / L * Dk * Dv];
    const double gate = std::exp(inputs.at("g")[row]);
    for (std::size_t d = 0; d < Dk; ++d) {
      for (std::size_t j = 0; j < Dv; ++j) {
        state[d * Dv + j] = gate * state[d * Dv + j] + inputs.at("k")[row * Dk + d] * inputs.at("v")[row * Dv + j];
        o[row * Dv + j] += problem.scale * inputs.at("q")[row * Dk + d] * state[d * Dv + j];
      }
    }
  }
  return outputs;
}

TEST(SimpleGlaBackwardTest, TheReferenceIsTheGradient) {
  const Problem problem = problem_of(2, 2, 13, 5, 3);
  expect_gradients(backward_operator(), problem, [&](const Doubles& inputs) { return forward(inputs, problem); });
}

// With all gates open the gradients of q, k and v are those of linear attention: chapter 02's reference.
TEST(SimpleGlaBackwardTest, OpenGatesGiveTheGradientsOfLinearAttention) {
  Problem problem = problem_of(1, 2, 37, 16, 32);
  fill(problem.inputs.at("g"), 0);
  std::map<std::string, Tensor> gradients;
  for (const Output& output : backward_operator().outputs()) {
    const std::string input = output.name.substr(1);
    gradients.emplace(output.name, Tensor(Dtype::fp32, problem.inputs.at(input).shape()));
  }
  const auto input = [&](const char* name, int rows, int width) {
    return packed<const float>(problem.inputs.at(name).elements<float>().data(), 2, rows, width);
  };
  const auto output = [&](const char* name, int rows, int width) {
    return packed<float>(gradients.at(name).elements<float>().data(), 2, rows, width);
  };
  linear_attention::recurrent_double_backward(
      {1, 2, 37, 16, 32, 64, float(problem.scale), input("q", 37, 16), input("k", 37, 16), input("v", 37, 32),
       input("initial_state", 16, 32), input("do", 37, 32), input("dfinal_state", 16, 32), output("dq", 37, 16),
       output("dk", 37, 16), output("dv", 37, 32), output("dinitial_state", 16, 32)});
  for (const Stage& stage : backward_operator().stages()) {
    SCOPED_TRACE(stage.name);
    const Outputs outputs = evaluate(backward_operator(), stage, problem);
    for (const char* name : {"dq", "dk", "dv", "dinitial_state"}) {
      const Comparison c = compare(outputs.at(name), gradients.at(name));
      EXPECT_TRUE(c.within(is_bf16(stage) ? 1e-2 : 1e-5)) << describe(c, name);
    }
  }
}

TEST(SimpleGlaBackwardTest, Small) {
  expect_match(problem_of(1, 2, 66, 16, 32));
}

TEST(SimpleGlaBackwardTest, Lengths) {
  for (const std::int64_t L : {1, 2, 31, 63, 64, 65, 129}) {
    SCOPED_TRACE(L);
    expect_match(problem_of(1, 2, L, 16, 48));
  }
}

TEST(SimpleGlaBackwardTest, ShapesOfWidths) {
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{5, 3}, {40, 65}, {144, 16}, {80, 128}}) {
    SCOPED_TRACE("Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    expect_match(problem_of(2, 1, 70, Dk, Dv), {}, Dk % 16 != 0 ? 3 : Dk > 128 ? 5 : 6);
  }
}

TEST(SimpleGlaBackwardTest, ShapesOfStrides) {
  expect_match(problem_of(2, 2, 67, 32, 64), {.heads_inside = true, .row_padding = 8});
  expect_match(problem_of(2, 2, 67, 32, 64), {.heads_inside = true, .row_padding = 3}, 3);
}

TEST(SimpleGlaBackwardTest, ShapesOfChunks) {
  const Stage& stage = find_stage(backward_operator(), "chunkwise");
  for (const std::int64_t C : {1, 7, 100, 1000}) {
    const Problem problem = problem_of(2, 3, 100, 24, 20, C);
    SCOPED_TRACE(C);
    expect_close(evaluate(backward_operator(), stage, problem), evaluate_reference(backward_operator(), problem),
                 tolerance_of(stage, problem.sizes));
  }
}

// Absent states are states of zeros, and the gradient of an absent one is not written.
TEST(SimpleGlaBackwardTest, NoStates) {
  Problem problem = problem_of(1, 2, 100, 48, 32);
  problem.inputs.erase("initial_state");
  problem.inputs.erase("dfinal_state");
  expect_match(problem);
  for (const Stage& stage : backward_operator().stages()) {
    SCOPED_TRACE(stage.name);
    StageTensors tensors(backward_operator(), problem, stage.processor, storage_of(stage), Dtype::fp32);
    tensors.poison_outputs();
    stage.run(tensors.graph_call());
    const Outputs outputs = tensors.download_outputs();
    const Outputs expected = evaluate_reference(backward_operator(), problem, stage.dtype);
    for (const char* name : {"dq", "dk", "dv", "dg"}) {
      const Comparison c = compare(name, outputs.at(name), expected);
      EXPECT_TRUE(c.within(tolerance_of(stage, problem.sizes))) << describe(c, name);
    }
    EXPECT_TRUE(compare(outputs.at("dinitial_state"), outputs.at("dinitial_state")).unwritten);
  }
}

TEST(SimpleGlaBackwardTest, EveryStageGivesTheSameBitsTwice) {
  const Problem problem = problem_of(2, 1, 100, 48, 80);
  for (const Stage& stage : backward_operator().stages()) {
    const Outputs once = evaluate(backward_operator(), stage, problem);
    const Outputs twice = evaluate(backward_operator(), stage, problem);
    for (const auto& [name, tensor] : once) {
      EXPECT_TRUE(std::ranges::equal(tensor.elements<float>(), twice.at(name).elements<float>()))
          << stage.name << " " << name;
    }
  }
}

// Three segments, the last of them shorter, with a chunk that is not whole.
TEST(SimpleGlaBackwardTest, SegmentsSplitTheSequence) {
  const Problem problem = problem_of(1, 1, 530, 16, 16);
  expect_match(problem);
  const Outputs truth = evaluate_reference(backward_operator(), problem, Dtype::bf16);
  for (const char* name : {"segments", "pipelined", "hopper_gradients"}) {
    const Stage& stage = find_stage(backward_operator(), name);
    if (!why_not(backward_operator(), stage, problem).empty()) continue;
    const Outputs outputs = evaluate(backward_operator(), stage, problem);
    EXPECT_LT(compare(outputs.at("dg"), truth.at("dg")).error, 1e-2) << name;
  }
}

template <int kRuns, bool kAreGiven>
void walk_in(const simple_gla::Bf16BackwardArguments& b) {
  walk_in_runs(b, cut_into(b, kRuns, kAreGiven));
}

template <int kRuns, bool kAreGiven>
void add_cut(Operator& definition) {
  definition.stage({.name = std::to_string(kRuns) + (kAreGiven ? " runs, states first" : " runs"),
                    .processor = Processor::gpu,
                    .dtype = Dtype::bf16,
                    .run = walk_in<kRuns, kAreGiven>,
                    .tolerance = find_stage(backward_operator(), "hopper_gradients").tolerance});
}

// Runs wait for each other, or begin with states computed before; a run has one segment or two.
TEST(SimpleGlaBackwardTest, SplitIntoRuns) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  Operator definition = backward_operator();
  const std::size_t before = definition.stages().size();
  add_cut<1, false>(definition);
  add_cut<2, false>(definition);
  add_cut<2, true>(definition);
  add_cut<5, false>(definition);
  add_cut<5, true>(definition);
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{32, 48}, {128, 80}}) {
    const Problem problem = problem_of(1, 2, 750, Dk, Dv);
    const Outputs truth = evaluate_reference(definition, problem, Dtype::bf16);
    for (std::size_t i = before; i < definition.stages().size(); ++i) {
      const Stage& stage = definition.stages()[i];
      SCOPED_TRACE(stage.name);
      for (const auto& [name, out] : evaluate(definition, stage, problem)) {
        const Comparison c = compare(name, out, truth);
        EXPECT_TRUE(c.within(name == "dg" ? tolerance_of(stage, problem.sizes) : 1e-2)) << describe(c, name);
      }
    }
  }
}

constexpr float kStrong = -1e4f;

/// g of position t of head h; u is uniform in [0, 1), `drawn` what the operator draws.
struct Pattern {
  const char* name;
  float (*gate)(std::int64_t t, std::int64_t h, double u, float drawn);
};

const Pattern kPatterns[] = {
    {"AllClosed", [](auto, auto, double, float) { return kStrong; }},
    {"AllOpen", [](auto, auto, double, float) { return 0.0f; }},
    {"ClosedOrOpen", [](auto, auto, double u, float) { return u < 0.1 ? kStrong : 0.0f; }},
    {"ClosedInHalf", [](auto, auto, double u, float drawn) { return u < 0.5 ? kStrong : drawn; }},
    {"FirstOfEachChunkClosed", [](auto t, auto, double, float drawn) { return t % 64 == 0 ? kStrong : drawn; }},
    {"LastOfEachChunkClosed", [](auto t, auto, double, float drawn) { return t % 64 == 63 ? kStrong : drawn; }},
    {"AllStrengths", [](auto, auto, double u, float) { return -float(std::pow(10.0, 14 * u - 10)); }},
    {"AsStrongAsFloatGets", [](auto, auto, double u, float drawn) { return u < 0.2 ? -3e38f : drawn; }},
    {"Retention", [](auto, auto h, double, float) { return float(std::log1p(-std::exp2(-5 - double(h)))); }},
};

class SimpleGlaBackwardGatesTest : public testing::TestWithParam<Pattern> {};

TEST_P(SimpleGlaBackwardGatesTest, EveryStageIsRight) {
  Problem problem = problem_of(1, 2, 130, 48, 32);
  const auto g = problem.inputs.at("g").elements<float>();
  const Random random(1, "pattern");
  for (std::size_t i = 0; i < g.size(); ++i) {
    g[i] = GetParam().gate(std::int64_t(i % 130), std::int64_t(i / 130), random.uniform(i), g[i]);
    ASSERT_LE(g[i], 0);
  }
  expect_match(problem);
}

INSTANTIATE_TEST_SUITE_P(Patterns, SimpleGlaBackwardGatesTest, testing::ValuesIn(kPatterns),
                         [](const auto& info) { return std::string(info.param.name); });

class SimpleGlaBackwardGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(SimpleGlaBackwardGoldenTest, EveryStageAgrees) {
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

INSTANTIATE_TEST_SUITE_P(FlashLinearAttention, SimpleGlaBackwardGoldenTest,
                         testing::Values("simple_gla", "simple_gla_d64", "simple_gla_strong"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tutorial
