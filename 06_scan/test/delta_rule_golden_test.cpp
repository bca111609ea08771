/// @file
/// delta_rule: every stage against tensors made with flash-linear-attention (golden/README.md).

#include "06_scan/test/states.hpp"

namespace tutorial {
namespace {

class DeltaRuleGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(DeltaRuleGoldenTest, EveryStageAgrees) {
  expect_golden(state_operator("delta_rule"), GetParam());
}

INSTANTIATE_TEST_SUITE_P(FlashLinearAttention, DeltaRuleGoldenTest,
                         testing::Values("delta_rule", "delta_rule_d64", "delta_rule_len1", "delta_rule_strong"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tutorial
