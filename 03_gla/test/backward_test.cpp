/// @file
/// The operator's gradients, `--backward`.

#include <cmath>

#include "03_gla/gla_backward.hpp"
#include "03_gla/test/stages.hpp"
#include "common/safetensors.hpp"
#include "common/test/gradients.hpp"

namespace tutorial::gla {
namespace {

const Operator& backward_operator() {
  return find_operator("gla", "backward");
}

Problem problem_of(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv,
                   std::int64_t C = 64) {
  return make_problem(backward_operator(),
                      {.sizes = {{"B", B}, {"H", H}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}, {"C", C}}, .seed = 8});
}

/// The same with a gradient of the final state.
Problem with_final_state(Problem problem) {
  const Sizes& s = problem.sizes;
  Tensor gradient(Dtype::fp32, {s.at("B"), s.at("H"), s.at("Dk"), s.at("Dv")});
  normal()(Random(problem.seed, "dfinal_state"), s, gradient);
  problem.inputs.insert_or_assign("dfinal_state", std::move(gradient));
  return problem;
}

/// The same with other gates: `g` gets the number of the row, of all heads one after the other, and the column.
Problem with_gates(Problem problem, const std::function<float(std::size_t row, std::size_t d, float drawn)>& g) {
  const auto Dk = std::size_t(problem.sizes.at("Dk"));
  const auto gates = problem.inputs.at("g").elements<float>();
  for (std::size_t i = 0; i < gates.size(); ++i) gates[i] = g(i / Dk, i % Dk, gates[i]);
  return problem;
}

void expect_match(const Problem& problem, const Layout& layout = {}, int fewest = 4) {
  EXPECT_GE(expect_supporting_stages_match(backward_operator(), problem, layout), fewest);
}

/// gla as its definition says.
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
    for (std::size_t d = 0; d < Dk; ++d) {
      const double gate = std::exp(inputs.at("g")[row * Dk + d]);
      for (std::size_t j = 0; j < Dv; ++j) {
        state[d * Dv + j] = gate * state[d * Dv + j] + inputs.at("k")[row * Dk + d] * inputs.at("v")[row * Dv + j];
        o[row * Dv + j] += problem.scale * inputs.at("q")[row * Dk + d] * state[d * Dv + j];
      }
    }
  }
  return outputs;
}

TEST(BackwardTest, TheReferenceIsTheGradient) {
  Problem problem = with_final_state(problem_of(2, 2, 13, 5, 3));
  problem = with_gates(std::move(problem), [](std::size_t row, std::size_t d, float drawn) {
    return (row + d) % 3 == 0 ? 20 * drawn : drawn;
  });
  expect_gradients(backward_operator(), problem, [&](const Doubles& inputs) { return forward(inputs, problem); });
}

TEST(BackwardTest, Small) {
  expect_match(with_final_state(problem_of(1, 1, 66, 16, 32)));
}

TEST(BackwardTest, ShapesOfLengths) {
  for (const std::int64_t L : {1, 2, 15, 17, 31, 33, 64, 65, 130}) {
    SCOPED_TRACE(L);
    expect_match(with_final_state(problem_of(1, 2, L, 16, 48)));
  }
}

TEST(BackwardTest, ShapesOfWidths) {
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {5, 3}, {40, 65}, {72, 16}}) {
    SCOPED_TRACE("Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    expect_match(with_final_state(problem_of(2, 1, 70, Dk, Dv)));
  }
}

TEST(BackwardTest, ShapesOfStrides) {
  for (const std::int64_t padding : {3, 8}) {
    SCOPED_TRACE(padding);
    expect_match(with_final_state(problem_of(2, 2, 67, 32, 64)), {.heads_inside = true, .row_padding = padding});
  }
}

TEST(BackwardTest, ShapesOfChunks) {
  for (const std::int64_t C : {1, 7, 16, 50, 1000}) {
    const Problem problem = with_final_state(problem_of(2, 1, 100, 24, 20, C));
    const Stage& stage = find_stage(backward_operator(), "chunkwise");
    SCOPED_TRACE(C);
    expect_close(evaluate(backward_operator(), stage, problem), evaluate_reference(backward_operator(), problem),
                 tolerance_of(stage, problem.sizes));
  }
}

// Absent states are states of zeros, and what is not asked for is not written.
TEST(BackwardTest, NoStates) {
  Problem problem = problem_of(1, 2, 70, 48, 32);
  problem.inputs.erase("initial_state");
  expect_match(problem);
  for (const Stage& stage : backward_operator().stages()) {
    SCOPED_TRACE(stage.name);
    StageTensors tensors(backward_operator(), problem, stage.processor, storage_of(stage), Dtype::fp32);
    tensors.poison_outputs();
    stage.run(tensors.graph_call());
    const Outputs outputs = tensors.download_outputs();
    const Outputs expected = evaluate_reference(backward_operator(), problem, stage.dtype);
    for (const char* name : {"dq", "dk", "dv", "dg"}) {
      const Comparison c = compare(outputs.at(name), expected.at(name));
      EXPECT_TRUE(c.within(tolerance_of(stage, problem.sizes))) << describe(c, name);
    }
    EXPECT_TRUE(compare(outputs.at("dinitial_state"), outputs.at("dinitial_state")).unwritten);
  }
}

// The errors of dg must not add up over the sequence: in bf16 one sum over 1500 positions would err by 1.5e-2 or more.
TEST(BackwardTest, LongSums) {
  expect_match(with_final_state(problem_of(1, 1, 1500, 16, 16)));
}

// For q, k, v and do in fp32, and for widths with several elements per lane.
TEST(BackwardTest, DispatchInFp32) {
  const Stage stage{.name = "dispatch in fp32",
                    .processor = Processor::gpu,
                    .run = on<FloatBackwardArguments>(dispatch_backward),
                    .unsupported = on<FloatBackwardArguments>(dispatch_backward_unsupported)};
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{33, 130}, {130, 5}}) {
    const Problem problem = with_final_state(problem_of(1, 2, 9, Dk, Dv));
    expect_close(evaluate(backward_operator(), stage, problem), evaluate_reference(backward_operator(), problem), 1e-5);
  }
  EXPECT_NE(why_not(backward_operator(), stage, problem_of(1, 1, 1, 513, 1)), "");
  EXPECT_NE(why_not(backward_operator(), stage, problem_of(1, 1, 1, 1, 513)), "");
}

TEST(BackwardTest, EveryStageGivesTheSameBitsTwice) {
  const Problem problem = with_final_state(problem_of(1, 1, 70, 48, 64));
  for (const Stage& stage : backward_operator().stages()) {
    const Outputs once = evaluate(backward_operator(), stage, problem);
    const Outputs twice = evaluate(backward_operator(), stage, problem);
    for (const auto& [name, tensor] : once) {
      EXPECT_TRUE(std::ranges::equal(tensor.elements<float>(), twice.at(name).elements<float>()))
          << stage.name << " " << name;
    }
  }
}

// The reference of long sequences is another function; it has to agree with the one that keeps all states.
TEST(BackwardTest, TheReferenceOfLongSequences) {
  const Problem problem = with_final_state(problem_of(1, 2, 200, 16, 24));
  const Stage stage{.name = "closed form in double", .dtype = Dtype::fp64, .run = closed_form_double_backward};
  expect_close(evaluate(backward_operator(), stage, problem), evaluate_reference(backward_operator(), problem), 1e-6);
}

TEST(BackwardGatesTest, OnesZerosAndBoth) {
  const auto problem = [] { return with_final_state(problem_of(1, 2, 70, 32, 32)); };
  expect_match(with_gates(problem(), [](std::size_t, std::size_t, float) { return 0.0f; }));
  expect_match(with_gates(problem(), [](std::size_t row, std::size_t, float) { return row % 5 == 3 ? -1e4f : 0.0f; }));
  expect_match(with_gates(
      problem(), [](std::size_t row, std::size_t d, float drawn) { return (row * 7 + d) % 50 == 0 ? -1e4f : drawn; }));
}

// No state survives a position, so no gate changes anything: dg is zero, and not what rounding leaves of a difference.
TEST(BackwardGatesTest, AllClosed) {
  const Problem problem =
      with_gates(with_final_state(problem_of(1, 1, 70, 32, 32)), [](std::size_t, std::size_t, float) { return -1e4f; });
  expect_match(problem);
  for (const Stage& stage : backward_operator().stages()) {
    const Outputs outputs = evaluate(backward_operator(), stage, problem);
    for (const float x : outputs.at("dg").elements<float>()) ASSERT_EQ(x, 0) << stage.name;
  }
}

// Small gates everywhere: dg is as small as they are. It would be rounding errors if the pairs of a position with
// itself, which are a thousand times as large, took part in the difference.
TEST(BackwardGatesTest, AllSmall) {
  expect_match(with_gates(with_final_state(problem_of(1, 2, 70, 32, 32)),
                          [](std::size_t, std::size_t, float) { return -10.0f; }));
}

// `anchored_pairs` needs decays of at least 2^-80, which are 16 gates of exp(-3.4657), in all columns of a sub-chunk.
TEST(BackwardGatesTest, OnBothSidesOfAnAnchorsBound) {
  for (const float least : {-3.46f, -3.47f, -8.0f}) {
    const auto one_column = [&](std::size_t row, std::size_t d, float drawn) {
      return row / 16 % 2 == 1 && d == 5 ? least : drawn;
    };
    expect_match(with_gates(with_final_state(problem_of(1, 1, 70, 32, 32)), one_column));
    expect_match(with_gates(with_final_state(problem_of(1, 1, 70, 80, 16)),
                            [&](std::size_t, std::size_t, float) { return least; }));
  }
  // Large numbers beside factors of up to 2^80.
  Problem large = with_gates(with_final_state(problem_of(1, 1, 70, 32, 32)),
                             [](std::size_t, std::size_t, float) { return -3.45f; });
  for (const char* name : {"q", "k", "v", "do"}) {
    for (float& x : large.inputs.at(name).elements<float>()) x *= 0x1p17f;
  }
  expect_match(large);
}

// `one_anchor` needs decays of at least 2^-60 in all columns of a chunk, which are 64 gates of exp(-0.6498).
TEST(BackwardGatesTest, OnBothSidesOfTheBoundOfAChunk) {
  for (const float least : {-0.64f, -0.66f, -8.0f}) {
    // Chunks of both kinds, one after the other.
    const auto one_column = [&](std::size_t row, std::size_t d, float drawn) {
      return row / 64 % 2 == 1 && d == 5 ? least : drawn;
    };
    expect_match(with_gates(with_final_state(problem_of(1, 1, 300, 32, 32)), one_column));
    expect_match(with_gates(with_final_state(problem_of(1, 1, 200, 80, 16)),
                            [&](std::size_t, std::size_t, float) { return least; }));
  }
  Problem large = with_gates(with_final_state(problem_of(1, 1, 130, 32, 32)),
                             [](std::size_t, std::size_t, float) { return -0.64f; });
  for (const char* name : {"q", "k", "v", "do"}) {
    for (float& x : large.inputs.at(name).elements<float>()) x *= 0x1p17f;
  }
  expect_match(large);
}

// The gates of retention, one number per head.
TEST(BackwardGatesTest, Retention) {
  expect_match(with_gates(with_final_state(problem_of(1, 2, 70, 32, 48)), [](std::size_t row, std::size_t, float) {
    return float(std::log1p(-std::exp2(-5.0 - double(row / 70))));
  }));
}

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
  EXPECT_GE(ran, 4);
}

INSTANTIATE_TEST_SUITE_P(FlashLinearAttention, BackwardGoldenTest, testing::Values("gla", "gla_d64", "gla_strong"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tutorial::gla
