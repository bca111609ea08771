/// @file
/// A sequence in two calls, the final state of the first being the initial state of the second, is the sequence in one.

#include "common/test/split.hpp"
#include "05_deltanet_wy/test/stages.hpp"

namespace tutorial {
namespace {

void expect_two_calls_are_one(const Operator& definition, std::int64_t middle) {
  constexpr std::int64_t L = 200;
  const Problem whole = drawn(1, 2, L, 48, 80, 64, definition);
  for (const Stage& stage : definition.stages()) {
    SCOPED_TRACE(definition.label() + " " + stage.name);
    if (&definition == &normalized_operator() && !why_not(definition, stage, whole).empty()) continue;
    ASSERT_EQ(why_not(definition, stage, whole), "");
    const double tolerance = tolerance_of(stage, whole.sizes);
    const Outputs at_once = evaluate(definition, stage, whole);
    const Outputs first = evaluate(definition, stage, part_of(whole, 0, middle, whole.inputs.at("initial_state")));
    const Outputs second = evaluate(definition, stage, part_of(whole, middle, L, first.at("final_state")));
    EXPECT_TRUE(compare(first.at("o"), slice(at_once.at("o"), 0, middle)).within(tolerance));
    EXPECT_TRUE(compare(second.at("o"), slice(at_once.at("o"), middle, L)).within(tolerance));
    EXPECT_TRUE(compare(second.at("final_state"), at_once.at("final_state")).within(tolerance));
  }
}

class SplitTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(SplitTest, TwoCallsAreOne) {
  expect_two_calls_are_one(delta_rule_operator(), GetParam());
  expect_two_calls_are_one(normalized_operator(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(At, SplitTest, testing::Values(1, 64, 90, 128, 199));

}  // namespace
}  // namespace tutorial
