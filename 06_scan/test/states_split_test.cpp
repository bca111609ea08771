/// @file
/// simple_gla and delta_rule: a sequence in two calls, the final state of the first being the initial state of the
/// second, is the sequence in one; and states may be absent.

#include "06_scan/test/states.hpp"
#include "common/test/split.hpp"

namespace tutorial {
namespace {

class StatesSplitTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(StatesSplitTest, TwoCallsAreOne) {
  constexpr std::int64_t L = 200;
  const std::int64_t middle = GetParam();
  for (const char* name : {"simple_gla", "delta_rule"}) {
    const Operator& definition = state_operator(name);
    const Problem whole = drawn_states(definition, 1, 2, L, 24, 20);
    ASSERT_TRUE(whole.inputs.contains("initial_state"));
    for (const Stage& stage : definition.stages()) {
      if (!is_scan(stage)) continue;
      SCOPED_TRACE(definition.name() + " " + stage.name);
      const double tolerance = tolerance_of(stage, whole.sizes);
      const Outputs at_once = evaluate(definition, stage, whole);
      const Outputs first = evaluate(definition, stage, part_of(whole, 0, middle, whole.inputs.at("initial_state")));
      const Outputs second = evaluate(definition, stage, part_of(whole, middle, L, first.at("final_state")));
      EXPECT_TRUE(compare(first.at("o"), slice(at_once.at("o"), 0, middle)).within(tolerance));
      EXPECT_TRUE(compare(second.at("o"), slice(at_once.at("o"), middle, L)).within(tolerance));
      EXPECT_TRUE(compare(second.at("final_state"), at_once.at("final_state")).within(tolerance));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(At, StatesSplitTest, testing::Values(1, 32, 64, 90, 128, 199));

// No initial state is one of zeros, and a final state that is not wanted changes nothing.
TEST(StatesMayBeAbsentSplitTest, LikeZeros) {
  for (const char* name : {"simple_gla", "delta_rule"}) {
    const Operator& definition = state_operator(name);
    for (const std::int64_t L : {20, 150}) {
      Problem problem = drawn_states(definition, 2, 2, L, 24, 20);
      for (float& x : problem.inputs.at("initial_state").elements<float>()) x = 0;
      for (const Stage& stage : definition.stages()) {
        if (!is_scan(stage)) continue;
        SCOPED_TRACE(definition.name() + " " + stage.name);
        const Outputs zeros = evaluate(definition, stage, problem);
        StageTensors tensors(definition, problem, stage.processor, storage_of(stage), Dtype::fp32);
        stage.run(tensors.graph_call());
        const Outputs absent = tensors.download_outputs({"final_state"});
        expect_close(absent, zeros, 1e-6);
      }
    }
  }
}

}  // namespace
}  // namespace tutorial
