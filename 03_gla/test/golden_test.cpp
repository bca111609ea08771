/// @file
/// Every stage against tensors made with flash-linear-attention (golden/README.md).

#include "03_gla/test/stages.hpp"
#include "common/safetensors.hpp"

namespace tutorial {
namespace {

struct Golden {
  const char *definition, *file;
  int fewest;  // stages that take it: those of gla without parallel_unstable, for whose sake `strong` is there
};

class GoldenTest : public testing::TestWithParam<Golden> {};

TEST_P(GoldenTest, EveryStageAgrees) {
  const Operator& definition = find_operator(GetParam().definition);
  const std::string path = std::string(GOLDEN_FOLDER "/") + GetParam().file + ".safetensors";
  Problem problem = make_problem(definition, {.input_file = path});
  const SafetensorsFile file(path);
  if (!file.contains("initial_state")) problem.inputs.erase("initial_state");  // retention's have none
  Outputs expected;
  for (const char* name : {"o", "final_state"}) {
    if (file.contains(name)) expected.insert_or_assign(name, file.read(name));
  }
  int ran = 0;
  for (const Stage& stage : definition.stages()) {
    if (!why_not(definition, stage, problem).empty()) continue;
    SCOPED_TRACE(stage.name);
    ++ran;
    Outputs outputs = evaluate(definition, stage, problem);
    if (!file.contains("final_state")) outputs.erase("final_state");
    expect_close(outputs, expected, is_bf16(stage) ? 2e-2 : 1e-5);
  }
  EXPECT_GE(ran, GetParam().fewest);
}

INSTANTIATE_TEST_SUITE_P(FlashLinearAttention, GoldenTest,
                         testing::Values(Golden{"gla", "gla", 7}, Golden{"gla", "gla_d64", 10},
                                         Golden{"gla", "gla_len1", 7}, Golden{"gla", "gla_strong", 9},
                                         Golden{"retention", "retention", 2}, Golden{"retention", "retention_d64", 2},
                                         Golden{"retention", "retention_len1", 2},
                                         Golden{"retention", "retention_strong", 2}),
                         [](const auto& info) { return std::string(info.param.file); });

}  // namespace
}  // namespace tutorial
