/// @file
/// A sequence in two calls, the final state of the first being the initial state of the second, is the sequence in one.

#include "common/test/split.hpp"
#include "03_gla/test/stages.hpp"

namespace tutorial {
namespace {

class SplitTest : public testing::TestWithParam<std::int64_t> {
 protected:
  static void expect_two_calls_are_one(const Operator& definition, int fewest) {
    constexpr std::int64_t L = 200;
    const std::int64_t middle = GetParam();
    const Problem whole =
        make_problem(definition, {.sizes = {{"B", 1}, {"H", 2}, {"L", L}, {"Dk", 48}, {"Dv", 80}}, .seed = 6});
    int ran = 0;
    for (const Stage& stage : definition.stages()) {
      if (!why_not(definition, stage, whole).empty()) continue;
      SCOPED_TRACE(stage.name);
      ++ran;
      const double tolerance = tolerance_of(stage, whole.sizes);
      const Outputs at_once = evaluate(definition, stage, whole);
      const Outputs first = evaluate(definition, stage, part_of(whole, 0, middle, whole.inputs.at("initial_state")));
      const Outputs second = evaluate(definition, stage, part_of(whole, middle, L, first.at("final_state")));
      EXPECT_TRUE(compare(first.at("o"), slice(at_once.at("o"), 0, middle)).within(tolerance));
      EXPECT_TRUE(compare(second.at("o"), slice(at_once.at("o"), middle, L)).within(tolerance));
      EXPECT_TRUE(compare(second.at("final_state"), at_once.at("final_state")).within(tolerance));
    }
    EXPECT_GE(ran, fewest);
  }
};

TEST_P(SplitTest, TwoCallsAreOne) {
  expect_two_calls_are_one(gla_operator(), 10);
  expect_two_calls_are_one(find_operator("retention"), 2);
}

INSTANTIATE_TEST_SUITE_P(At, SplitTest, testing::Values(1, 64, 90, 128, 199));

}  // namespace
}  // namespace tutorial
