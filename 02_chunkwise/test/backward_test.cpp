/// @file
/// The operator's gradients, `--backward`.

#include <algorithm>
#include <cmath>
#include <vector>

#include "02_chunkwise/linear_attention_backward/dispatch/walks.hpp"
#include "02_chunkwise/test/stages.hpp"
#include "common/safetensors.hpp"
#include "common/test/gradients.hpp"
#include "common/test/on_card.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::linear_attention {
namespace {

const Operator& backward_operator() {
  return find_operator("linear_attention", "backward");
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

void expect_match(const Problem& problem, const Layout& layout = {}, int fewest = 5) {
  EXPECT_GE(expect_supporting_stages_match(backward_operator(), problem, layout), fewest);
}

/// linear_attention as its definition says.
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
      for (std::size_t j = 0; j < Dv; ++j) {
        state[d * Dv + j] += inputs.at("k")[row * Dk + d] * inputs.at("v")[row * Dv + j];
        o[row * Dv + j] += problem.scale * inputs.at("q")[row * Dk + d] * state[d * Dv + j];
      }
    }
  }
  return outputs;
}

TEST(BackwardTest, TheReferenceIsTheGradient) {
  const Problem problem = with_final_state(problem_of(2, 2, 13, 5, 3));
  expect_gradients(backward_operator(), problem, [&](const Doubles& inputs) { return forward(inputs, problem); });
}

/// The same of packed sequences, each by itself.
Doubles forward_of_sequences(const Doubles& inputs, const std::vector<std::int64_t>& lengths, const Problem& packed) {
  const std::int64_t H = packed.sizes.at("H"), L = packed.sizes.at("L"), Dk = packed.sizes.at("Dk"),
                     Dv = packed.sizes.at("Dv");
  Doubles outputs{{"o", std::vector<double>(std::size_t(H * L * Dv))}, {"final_state", {}}};
  std::int64_t begin = 0;
  for (std::size_t n = 0; n < lengths.size(); begin += lengths[n++]) {
    Doubles part;
    // Calls f(row of the part, row of all), for rows of D elements.
    const auto for_each_row = [&](auto f) {
      for (std::int64_t h = 0; h < H; ++h) {
        for (std::int64_t t = 0; t < lengths[n]; ++t) f(h * lengths[n] + t, h * L + begin + t);
      }
    };
    for (const auto& [name, D] : {std::pair("q", Dk), {"k", Dk}, {"v", Dv}}) {
      part[name].resize(std::size_t(H * lengths[n] * D));
      for_each_row([&, D = D, name = name](std::int64_t to, std::int64_t from) {
        std::copy_n(inputs.at(name).begin() + from * D, D, part.at(name).begin() + to * D);
      });
    }
    const auto state = inputs.at("initial_state").begin() + std::int64_t(n) * H * Dk * Dv;
    part["initial_state"].assign(state, state + H * Dk * Dv);
    Problem alone;
    alone.scale = packed.scale, alone.sizes = packed.sizes;
    alone.sizes["L"] = lengths[n];
    const Doubles own = forward(part, alone);
    for_each_row([&](std::int64_t from, std::int64_t to) {
      std::copy_n(own.at("o").begin() + from * Dv, Dv, outputs.at("o").begin() + to * Dv);
    });
    const auto& end = own.at("final_state");
    outputs.at("final_state").insert(outputs.at("final_state").end(), end.begin(), end.end());
  }
  return outputs;
}

TEST(BackwardTest, TheReferenceOfPackedSequencesIsTheGradient) {
  const std::vector<std::int64_t> lengths{4, 0, 6, 1};
  const Operator& packed = find_operator("linear_attention", "backward+lengths");
  Problem problem = make_problem(packed, {.sizes = {{"H", 2}, {"Dk", 5}, {"Dv", 3}}, .seed = 8, .lengths = lengths});
  Tensor gradient(Dtype::fp32, problem.inputs.at("initial_state").shape());
  normal()(Random(problem.seed, "dfinal_state"), problem.sizes, gradient);
  problem.inputs.insert_or_assign("dfinal_state", std::move(gradient));
  expect_gradients(packed, problem,
                   [&](const Doubles& inputs) { return forward_of_sequences(inputs, lengths, problem); });
}

TEST(BackwardTest, Small) {
  expect_match(with_final_state(problem_of(1, 1, 66, 16, 32)));
}

class BackwardLengthsTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(BackwardLengthsTest, AreAllRight) {
  expect_match(with_final_state(problem_of(1, 2, GetParam(), 16, 48)));
  if (GetParam() > 200) return;
  expect_match(with_final_state(problem_of(1, 1, GetParam(), 128, 64)));
}

INSTANTIATE_TEST_SUITE_P(AroundAChunk, BackwardLengthsTest, testing::Values(1, 2, 31, 33, 64, 65, 200, 1000));

TEST(BackwardTest, ShapesOfWidths) {
  for (const auto& [Dk, Dv] :
       {std::pair<std::int64_t, std::int64_t>{5, 3}, {40, 65}, {256, 16}, {80, 208}, {256, 512}}) {
    SCOPED_TRACE("Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    expect_match(with_final_state(problem_of(2, 1, 70, Dk, Dv)), {}, 3);
  }
}

TEST(BackwardTest, ShapesOfStrides) {
  for (const std::int64_t padding : {3, 8}) {
    SCOPED_TRACE(padding);
    expect_match(with_final_state(problem_of(2, 3, 67, 64, 64)), {.heads_inside = true, .row_padding = padding}, 3);
  }
}

TEST(BackwardTest, ShapesOfChunks) {
  for (const std::int64_t C : {1, 7, 100, 1000}) {
    const Problem problem = with_final_state(problem_of(2, 3, 100, 24, 20, C));
    const Stage& stage = find_stage(backward_operator(), "chunkwise");
    SCOPED_TRACE(C);
    expect_close(evaluate(backward_operator(), stage, problem), evaluate_reference(backward_operator(), problem),
                 tolerance_of(stage, problem.sizes));
  }
}

// Absent states are states of zeros, and what nobody asks for is not written.
TEST(BackwardTest, NoStates) {
  Problem problem = problem_of(1, 2, 130, 48, 32);
  problem.inputs.erase("initial_state");
  expect_match(problem);
  for (const Stage& stage : backward_operator().stages()) {
    SCOPED_TRACE(stage.name);
    StageTensors tensors(backward_operator(), problem, stage.processor, storage_of(stage), Dtype::fp32);
    tensors.poison_outputs();
    stage.run(tensors.graph_call());
    const Outputs outputs = tensors.download_outputs();
    const Outputs expected = evaluate_reference(backward_operator(), problem, stage.dtype);
    for (const char* name : {"dq", "dk", "dv"}) {
      const Comparison c = compare(outputs.at(name), expected.at(name));
      EXPECT_TRUE(c.within(tolerance_of(stage, problem.sizes))) << describe(c, name);
    }
    EXPECT_TRUE(compare(outputs.at("dinitial_state"), outputs.at("dinitial_state")).unwritten);
  }
}

TEST(BackwardTest, EveryStageGivesTheSameBitsTwice) {
  const Problem problem = with_final_state(problem_of(2, 1, 130, 48, 80));
  for (const Stage& stage : backward_operator().stages()) {
    const Outputs once = evaluate(backward_operator(), stage, problem);
    const Outputs twice = evaluate(backward_operator(), stage, problem);
    for (const auto& [name, tensor] : once) {
      EXPECT_TRUE(std::ranges::equal(tensor.elements<float>(), twice.at(name).elements<float>()))
          << stage.name << " " << name;
    }
  }
}

using Walks = void(const Bf16BackwardArguments&, const tile::LaunchPlan&);

template <Walks kWalks, int kColumns, int kSegments>
void walk_in_segments(const Bf16BackwardArguments& b) {
  kWalks(b, tile::make_launch_plan(b.L, kColumns, kSegments));
}

template <Walks kWalks, int kColumns>
void expect_right(std::int64_t Dk, std::int64_t Dv) {
  SCOPED_TRACE(std::to_string(kColumns) + " columns, Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
  const Problem problem = with_final_state(problem_of(1, 2, 200, Dk, Dv));
  const Outputs truth = evaluate_reference(backward_operator(), problem, Dtype::bf16);
  for (const auto run : {walk_in_segments<kWalks, kColumns, 1>, walk_in_segments<kWalks, kColumns, 2>,
                         walk_in_segments<kWalks, kColumns, 3>, walk_in_segments<kWalks, kColumns, 100>}) {
    const Stage stage{.name = "walks", .processor = Processor::gpu, .dtype = Dtype::bf16, .run = run};
    expect_close(evaluate(backward_operator(), stage, problem), truth, tolerance_of(stage, problem.sizes));
  }
}

TEST(BackwardWalkTest, EveryTileInAnyNumberOfSegments) {
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{48, 144}, {128, 128}}) {
    expect_right<gradient_walks, 64>(Dk, Dv);
    expect_right<gradient_walks, 128>(Dk, Dv);
  }
}

TEST(BackwardWalkTest, EveryWarpgroupTileInAnyNumberOfSegments) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{48, 64}, {64, 112}, {128, 128}}) {
    expect_right<hopper_gradient_walks, 64>(Dk, Dv);
  }
}

/// What dispatch takes.
/// @param is_mapped whether bulk copies can take the tensors
std::string choice(int B, int H, int L, int Dk, int Dv, bool is_mapped = true) {
  Bf16BackwardArguments b{};
  b.B = B;
  b.H = H;
  b.L = L;
  b.Dk = Dk;
  b.Dv = Dv;
  b.scale = 1;
  if (is_mapped) {
    b.q = b.k = packed<const __nv_bfloat16>(nullptr, H, L, Dk);
    b.v = b.d_o = packed<const __nv_bfloat16>(nullptr, H, L, Dv);
    b.dq = b.dk = packed<__nv_bfloat16>(nullptr, H, L, Dk);
    b.dv = packed<__nv_bfloat16>(nullptr, H, L, Dv);
  }
  return dispatch_backward_note(b);
}

// The first two were measured; the others follow from the same times.
TEST(BackwardDispatchTest, ChoosesByHeadsAndLength) {
  if (!is_an_h200()) GTEST_SKIP() << "the choices are an H200's";
  EXPECT_EQ(choice(4, 8, 2048, 128, 128), "warpgroups, 64 columns per block");
  EXPECT_EQ(choice(4, 8, 16384, 128, 128), "warpgroups, 2 segments, 64 columns per block");
  EXPECT_EQ(choice(2, 64, 8192, 128, 128), "warpgroups, 64 columns per block");
  EXPECT_EQ(choice(4, 8, 2048, 128, 128, false).substr(0, 12), "mma by warps");
  EXPECT_EQ(choice(4, 8, 2048, 128, 144).substr(0, 12), "mma by warps") << "a state of 144 rows";
  EXPECT_EQ(choice(1, 1, 64, 64, 65).substr(0, 14), "fused in fp32:");
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
  EXPECT_GE(ran, 3);
}

INSTANTIATE_TEST_SUITE_P(FlashLinearAttention, BackwardGoldenTest,
                         testing::Values("linear_attention_fla", "linear_attention_fla_d64",
                                         "linear_attention_fla_strong"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tutorial::linear_attention
