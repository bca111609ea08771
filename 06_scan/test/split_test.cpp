/// @file
/// A sequence in two calls, the final state of the first being the initial state of the second, is the sequence in one;
/// and the sums of the two calls' gates add up to its sum.

#include "common/test/split.hpp"
#include "06_scan/test/stages.hpp"

namespace tutorial {
namespace {

class SplitTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(SplitTest, TwoCallsAreOne) {
  constexpr std::int64_t L = 4400;
  const Operator& definition = scan_operator();
  const std::int64_t middle = GetParam();
  for (const std::int64_t D : {1, 3, 36}) {
    const Problem whole = drawn(1, 2, L, D, D);
    for (const Stage& stage : definition.stages()) {
      if (is_for_one_layout(stage) && (!why_not(definition, stage, whole).empty() || middle % 4 != 0)) continue;
      SCOPED_TRACE(stage.name + " D " + std::to_string(D));
      const double tolerance = tolerance_of(stage, whole.sizes);
      const Outputs at_once = evaluate(definition, stage, whole);
      const Outputs first = evaluate(definition, stage, part_of(whole, 0, middle, whole.inputs.at("initial_state")));
      const Outputs second = evaluate(definition, stage, part_of(whole, middle, L, first.at("final_state")));
      EXPECT_TRUE(compare(first.at("y"), slice(at_once.at("y"), 0, middle)).within(tolerance));
      EXPECT_TRUE(compare(second.at("y"), slice(at_once.at("y"), middle, L)).within(tolerance));
      EXPECT_TRUE(compare(second.at("final_state"), at_once.at("final_state")).within(tolerance));
      if (stage.name == "cub") continue;
      Tensor sum = first.at("final_log_decay").to(Dtype::fp32);
      for (std::size_t i = 0; i < sum.elements<float>().size(); ++i) {
        sum.elements<float>()[i] += second.at("final_log_decay").elements<float>()[i];
      }
      EXPECT_TRUE(compare(sum, at_once.at("final_log_decay")).within(tolerance));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(At, SplitTest, testing::Values(1, 31, 256, 1000, 4096, 4399));

}  // namespace
}  // namespace tutorial
