/// @file
/// Every stage against tensors made with flash-linear-attention (golden/README.md).

#include "05_deltanet_wy/test/stages.hpp"
#include "common/safetensors.hpp"

namespace tutorial {
namespace {

struct Golden {
  const char* file;
  bool tensor_cores_too;  // widths are multiples of 16
};

class GoldenTest : public testing::TestWithParam<Golden> {};

TEST_P(GoldenTest, EveryStageAgrees) {
  const Operator& definition = delta_rule_operator();
  const std::string path = std::string(GOLDEN_FOLDER "/") + GetParam().file + ".safetensors";
  const Problem problem = make_problem(definition, {.input_file = path});
  const SafetensorsFile file(path);
  Outputs expected;
  for (const char* name : {"o", "final_state"}) expected.insert_or_assign(name, file.read(name));
  for (const Stage& stage : definition.stages()) {
    SCOPED_TRACE(stage.name);
    const std::string reason = why_not(definition, stage, problem);
    if (is_bf16(stage) && !GetParam().tensor_cores_too && !reason.empty()) continue;
    ASSERT_EQ(reason, "");
    expect_close(evaluate(definition, stage, problem), expected, is_bf16(stage) ? 2e-2 : 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(FlashLinearAttention, GoldenTest,
                         testing::Values(Golden{"delta_rule", false}, Golden{"delta_rule_d64", true},
                                         Golden{"delta_rule_len1", true}, Golden{"delta_rule_strong", true}),
                         [](const auto& info) { return std::string(info.param.file); });

}  // namespace
}  // namespace tutorial
