/// @file
/// Every stage against tensors made with flash-linear-attention (golden/README.md).

#include "02_chunkwise/test/stages.hpp"
#include "common/safetensors.hpp"

namespace tutorial {
namespace {

class GoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTest, EveryStageAgrees) {
  const Operator& definition = linear_attention_operator();
  const std::string path = std::string(GOLDEN_FOLDER "/") + GetParam() + ".safetensors";
  const Problem problem = make_problem(definition, {.input_file = path});
  const SafetensorsFile file(path);
  Outputs expected;
  for (const char* name : {"o", "final_state"}) expected.insert_or_assign(name, file.read(name));
  int ran = 0;
  for (const Stage& stage : definition.stages()) {
    if (!why_not(definition, stage, problem).empty()) continue;  // widths that are no multiple of 16
    SCOPED_TRACE(stage.name);
    ++ran;
    expect_close(evaluate(definition, stage, problem), expected, is_bf16(stage) ? 2e-2 : 1e-5);
  }
  EXPECT_GE(ran, 5);
}

INSTANTIATE_TEST_SUITE_P(FlashLinearAttention, GoldenTest,
                         testing::Values("linear_attention_fla", "linear_attention_fla_d64",
                                         "linear_attention_fla_len1", "linear_attention_fla_strong"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tutorial
