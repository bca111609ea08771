/// @file
/// simple_gla: every stage against tensors made with flash-linear-attention (golden/README.md).

#include "06_scan/test/states.hpp"

namespace tutorial {
namespace {

class SimpleGlaGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(SimpleGlaGoldenTest, EveryStageAgrees) {
  expect_golden(state_operator("simple_gla"), GetParam());
}

INSTANTIATE_TEST_SUITE_P(FlashLinearAttention, SimpleGlaGoldenTest,
                         testing::Values("simple_gla", "simple_gla_d64", "simple_gla_len1", "simple_gla_strong"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tutorial
