/// @file
/// A sequence in two calls, the final state of the first being the initial state of the second, is the sequence in one.

#include "common/test/split.hpp"
#include "02_chunkwise/test/stages.hpp"

namespace tutorial {
namespace {

class SplitTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(SplitTest, TwoCallsAreOne) {
  const Operator& definition = linear_attention_operator();
  constexpr std::int64_t L = 200;
  const std::int64_t middle = GetParam();
  const Problem whole =
      make_problem(definition, {.sizes = {{"B", 1}, {"H", 2}, {"L", L}, {"Dk", 48}, {"Dv", 80}}, .seed = 6});
  int ran = 0;
  for (const Stage& stage : definition.stages()) {
    if (!stage.without.empty()) continue;  // it gives no final state
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
  EXPECT_GE(ran, 4);
}

INSTANTIATE_TEST_SUITE_P(At, SplitTest, testing::Values(1, 64, 90, 128, 199));

}  // namespace
}  // namespace tutorial
