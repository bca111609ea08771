/// @file
/// A sequence in two calls, the final state of the first being the initial state of the second, is the sequence in one.

#include "common/test/split.hpp"
#include "04_fused_chunk/test/stages.hpp"

namespace tutorial {
namespace {

class SplitTest : public testing::TestWithParam<std::int64_t> {
 protected:
  static void expect_two_calls_are_one(const Operator& definition) {
    constexpr std::int64_t L = 200;
    const std::int64_t middle = GetParam();
    Problem whole = drawn(definition, 1, 2, L, 48, 80);
    ASSERT_TRUE(whole.inputs.contains("initial_state"));
    for (const Stage& stage : definition.stages()) {
      if (is_for_another_gpu(stage)) continue;
      ASSERT_EQ(why_not(definition, stage, whole), "");
      SCOPED_TRACE(stage.name);
      const double tolerance = tolerance_of(stage, whole.sizes);
      const Outputs at_once = evaluate(definition, stage, whole);
      const Outputs first = evaluate(definition, stage, part_of(whole, 0, middle, whole.inputs.at("initial_state")));
      const Outputs second = evaluate(definition, stage, part_of(whole, middle, L, first.at("final_state")));
      EXPECT_TRUE(compare(first.at("o"), slice(at_once.at("o"), 0, middle)).within(tolerance));
      EXPECT_TRUE(compare(second.at("o"), slice(at_once.at("o"), middle, L)).within(tolerance));
      EXPECT_TRUE(compare(second.at("final_state"), at_once.at("final_state")).within(tolerance));
    }
  }
};

TEST_P(SplitTest, TwoCallsAreOne) {
  expect_two_calls_are_one(find_operator("gla"));
  expect_two_calls_are_one(find_operator("simple_gla"));
}

INSTANTIATE_TEST_SUITE_P(At, SplitTest, testing::Values(1, 16, 64, 90, 128, 199));

// No initial state is one of zeros, and a final state that nobody asks for changes nothing.
TEST(SplitTest, StatesMayBeAbsent) {
  for (const char* name : {"gla", "simple_gla"}) {
    const Operator& definition = find_operator(name);
    Problem problem = drawn(definition, 2, 2, 70, 80, 80);
    for (float& x : problem.inputs.at("initial_state").elements<float>()) x = 0;
    for (const Stage& stage : definition.stages()) {
      if (is_for_another_gpu(stage)) continue;
      SCOPED_TRACE(stage.name);
      const Outputs zeros = evaluate(definition, stage, problem);
      StageTensors tensors(definition, problem, stage.processor, storage_of(stage), Dtype::fp32);
      stage.run(tensors.graph_call());
      const Outputs absent = tensors.download_outputs({"final_state"});
      EXPECT_TRUE(std::ranges::equal(absent.at("o").elements<float>(), zeros.at("o").elements<float>()));
    }
  }
}

}  // namespace
}  // namespace tutorial
