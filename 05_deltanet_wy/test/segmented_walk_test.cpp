/// @file
/// The walk of dispatch/segmented_walk.cuh with any number of segments, with and without gates, and where dispatch takes
/// it.

#include "05_deltanet_wy/delta_rule/dispatch/segmented_walk.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "05_deltanet_wy/delta_rule/dispatch/segmented_plan.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/specialized_warps.hpp"
#include "05_deltanet_wy/gated_delta_rule/dispatch/segmented_walk.hpp"
#include "05_deltanet_wy/test/stages.hpp"
#include "common/chapter/machine.hpp"

namespace tutorial::delta_rule {
namespace {

int most_segments = 1;  // a stage's functions have no other arguments than the problem

tile::LaunchPlan plan_of(const Bf16Arguments& a) {
  return tile::make_launch_plan(a.L, 64, most_segments);
}

void prepare_and_walk(const Bf16Arguments& a) {
  segmented_walk(a, prepare(a), plan_of(a));
}

std::int64_t bytes_of(const Bf16Arguments& a) {
  return segmented_walk_bytes_moved(a, plan_of(a));
}

using GatedArguments = gated_delta_rule::Bf16Arguments;

void prepare_and_walk_gated(const GatedArguments& a) {
  segmented_walk(a, gated_delta_rule::prepare(a), plan_of(a));
}

std::int64_t gated_bytes_of(const GatedArguments& a) {
  return gated_delta_rule::segmented_walk_bytes_moved(a, plan_of(a));
}

const Operator& gated_operator() {
  return find_operator("gated_delta_rule");
}

/// All operators that have this walk.
std::vector<const Operator*> operators() {
  return {&delta_rule_operator(), &normalized_operator(), &gated_operator(),
          &find_operator("gated_delta_rule", "normalize-keys")};
}

/// The operator's stage with at most this number of segments, until the next call.
Stage in_segments(int segments, const Operator& definition = delta_rule_operator()) {
  most_segments = segments;
  Stage stage{.name = "segmented_walk", .processor = Processor::gpu, .dtype = Dtype::bf16};
  if (definition.name() == gated_operator().name()) {
    stage.run = on<GatedArguments>(prepare_and_walk_gated);
    stage.bytes_moved = on<GatedArguments>(gated_bytes_of);
  } else {
    stage.run = on<Bf16Arguments>(prepare_and_walk);
    stage.bytes_moved = on<Bf16Arguments>(bytes_of);
  }
  return stage;
}

void expect_right(const Operator& definition, const Problem& problem, int segments, const Layout& layout = {}) {
  SCOPED_TRACE(definition.label() + ", " + std::to_string(segments) + " segments");
  const Stage stage = in_segments(segments, definition);
  expect_close(evaluate(definition, stage, problem, layout), evaluate_reference(definition, problem, Dtype::bf16),
               tolerance_of(stage, problem.sizes));
}

TEST(SegmentedWalkTest, Shapes) {
  struct {
    std::int64_t L, Dk, Dv;
    int segments;
  } const shapes[] = {{1, 16, 16, 1},     {63, 128, 16, 4},  {64, 64, 256, 2},  {65, 128, 128, 2},
                      {200, 112, 208, 2}, {200, 48, 144, 4}, {1000, 16, 80, 3}, {1000, 80, 32, 16}};
  for (const Operator* definition : operators()) {
    for (const auto& [L, Dk, Dv, segments] : shapes) {
      SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
      expect_right(*definition, drawn(1, 2, L, Dk, Dv, 64, *definition), segments);
    }
    expect_right(*definition, drawn(2, 3, 150, 64, 64, 64, *definition), 3, {.heads_inside = true, .row_padding = 8});
    expect_right(*definition, drawn(1, 1, 100, 256, 48, 64, *definition), 1);
  }
}

/// The largest relative error of an output.
double error_of(const Operator& definition, const Problem& problem, int segments) {
  const Outputs truth = evaluate_reference(definition, problem, Dtype::bf16);
  double most = 0;
  for (const auto& [name, out] : evaluate(definition, in_segments(segments, definition), problem)) {
    most = std::max(most, compare(name, out, truth).error);
  }
  return most;
}

// What the graph measure calls: without an initial state, and the final state is not wanted.
TEST(SegmentedWalkTest, StatesMayBeAbsent) {
  for (const Operator* definition : operators()) {
    SCOPED_TRACE(definition->label());
    Problem problem = drawn(2, 1, 260, 48, 80, 64, *definition);
    problem.inputs.erase("initial_state");
    expect_right(*definition, problem, 3);
    const Stage stage = in_segments(3, *definition);
    StageTensors tensors(*definition, problem, stage.processor, storage_of(stage), Dtype::fp32);
    tensors.poison_outputs();
    stage.run(tensors.graph_call());
    const Outputs outputs = tensors.download_outputs();
    const Comparison c = compare(outputs.at("o"), evaluate_reference(*definition, problem, Dtype::bf16).at("o"));
    EXPECT_TRUE(c.within(tolerance_of(stage, problem.sizes))) << describe(c, "o");
    EXPECT_TRUE(compare(outputs.at("final_state"), outputs.at("final_state")).unwritten);
  }
}

// E is rounded to bf16 once per segment. K and v_new are rounded in every chunk anyway.
TEST(SegmentedWalkTest, SegmentsCostNoAccuracy) {
  for (const Operator* definition : {&delta_rule_operator(), &gated_operator()}) {
    for (const auto& [cosine, beta] : {std::pair{0.0, 0.0f}, {0.5, 0.99f}, {0.9, 0.0f}, {0.9, 0.99f}}) {
      Problem problem = drawn(1, 1, 1500, 64, 32, 64, *definition);
      correlate(problem, cosine);
      if (beta > 0) fill(problem.inputs.at("beta"), beta);
      const double alone = error_of(*definition, problem, 1);
      for (const int segments : {2, 6, 24}) {
        EXPECT_LT(error_of(*definition, problem, segments), 1.25 * alone)
            << definition->label() << ", " << segments << " segments, cosine " << cosine << ", beta " << beta;
      }
    }
  }
}

// Gates that forget everything, gates of 1, and gates that differ by much within a chunk.
TEST(SegmentedWalkTest, GatesOfAllStrengths) {
  for (const float gate : {-1e4f, -0.5f, 0.0f}) {
    SCOPED_TRACE(gate);
    Problem problem = drawn(1, 1, 400, 64, 32, 64, gated_operator());
    fill(problem.inputs.at("g"), gate);
    expect_right(gated_operator(), problem, 5);
    auto gates = problem.inputs.at("g").elements<float>();
    for (std::size_t t = 0; t < gates.size(); t += 7) gates[t] = -3;
    expect_right(gated_operator(), problem, 3);
  }
}

#if TUTORIAL_EMULATOR
/// Expects the bytes that a stage states.
void expect_counted(const Operator& definition, const Stage& stage, const Problem& problem) {
  StageTensors tensors(definition, problem, stage.processor, storage_of(stage), Dtype::fp32);
  for (const Call& call : {tensors.call(), tensors.graph_call()}) {
    reset_kernel_counts();
    stage.run(call);
    const KernelCounts counts = kernel_counts();
    EXPECT_EQ(double(stage.bytes_moved(call)), counts.bytes_read + counts.bytes_written);
  }
}

TEST(SegmentedWalkTest, MovesTheBytesThatAreCounted) {
  for (const Operator* definition : operators()) {
    for (const auto& [L, Dk, Dv] : {std::array<std::int64_t, 3>{330, 48, 144}, {77, 128, 208}}) {
      for (const int segments : {1, 2, 5}) {
        SCOPED_TRACE(definition->label() + " L " + std::to_string(L) + ", segments " + std::to_string(segments));
        const Problem problem = drawn(1, 2, L, Dk, Dv, 64, *definition);
        expect_counted(*definition, in_segments(segments, *definition), problem);
      }
    }
  }
}

class OtherCardsTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { setenv("EMULATOR_DEVICE", GetParam(), 1); }
  void TearDown() override { unsetenv("EMULATOR_DEVICE"); }

  static std::string choice(int B, int H, int L, int Dk, int Dv) {
    Bf16Arguments a{};
    a.B = B;
    a.H = H;
    a.L = L;
    a.Dk = Dk;
    a.Dv = Dv;
    return dispatch_note(a);
  }
};

TEST_P(OtherCardsTest, FewHeadsAreWalkedInSegments) {
  const std::string card = GetParam();
  EXPECT_NE(choice(1, 1, 65536, 128, 128).find(" segments, 64 columns per block"), std::string::npos);
  EXPECT_EQ(choice(2, 64, 8192, 128, 128),
            card == "b200" ? "specialized warps, 64 columns per block" : "fused, 64 columns per block");
  EXPECT_EQ(choice(1, 1, 64, 128, 128),
            card == "b200" ? "specialized warps, 32 columns per block" : "fused, 64 columns per block");
}

// Each of them has as much shared memory as the kernels ask for, and keys of 256 where it has enough for these.
TEST_P(OtherCardsTest, DispatchIsRight) {
  for (const Operator* definition : operators()) {
    for (const auto& [L, Dk, Dv] : {std::array<std::int64_t, 3>{1000, 64, 16}, {130, 128, 80}, {70, 256, 32}}) {
      SCOPED_TRACE(definition->label() + " L " + std::to_string(L) + ", Dk " + std::to_string(Dk));
      const Problem problem = drawn(1, 1, L, Dk, Dv, 64, *definition);
      const Stage& stage = find_stage(*definition, "dispatch");
      expect_close(evaluate(*definition, stage, problem), evaluate_reference(*definition, problem, Dtype::bf16),
                   tolerance_of(stage, problem.sizes));
      if (Dk <= 128) expect_counted(*definition, stage, problem);  // fp32 does not state them
    }
  }
}

TEST_P(OtherCardsTest, MemoryIsThatOfTheSegments) {
  Bf16Arguments a{};
  a.B = a.H = 1;
  a.L = 65536;
  a.Dk = a.Dv = 128;
  const auto plan = segmented_plan(a);
  ASSERT_TRUE(plan);
  EXPECT_GT(plan->segments, 16);
  EXPECT_EQ(dispatch_memory(a), prepared_memory(a) + (plan->segments - 1) * 128 * 128 * (4 + 2));
}

INSTANTIATE_TEST_SUITE_P(Cards, OtherCardsTest, testing::Values("a100", "rtx4090", "b200", "rtx5090"),
                         [](const auto& card) { return std::string(card.param); });
#endif

}  // namespace
}  // namespace tutorial::delta_rule
