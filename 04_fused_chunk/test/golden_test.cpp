/// @file
/// Every stage against tensors made with flash-linear-attention (golden/README.md).

#include "04_fused_chunk/test/stages.hpp"
#include "common/safetensors.hpp"

namespace tutorial {
namespace {

struct Golden {
  const char *definition, *file;
  bool whole_fragments;  // widths that the tensor-core stages take
};

class GoldenTest : public testing::TestWithParam<Golden> {};

TEST_P(GoldenTest, EveryStageAgrees) {
  const Operator& definition = find_operator(GetParam().definition);
  const std::string path = std::string(GOLDEN_FOLDER "/") + GetParam().file + ".safetensors";
  const Problem problem = make_problem(definition, {.input_file = path});
  const SafetensorsFile file(path);
  Outputs expected;
  for (const char* name : {"o", "final_state"}) expected.insert_or_assign(name, file.read(name));
  for (const Stage& stage : definition.stages()) {
    if (is_for_another_gpu(stage)) continue;
    const bool takes_it = GetParam().whole_fragments || takes_any_width(stage);
    EXPECT_EQ(why_not(definition, stage, problem).empty(), takes_it) << stage.name;
    if (!takes_it) continue;
    SCOPED_TRACE(stage.name);
    expect_close(evaluate(definition, stage, problem), expected, is_bf16(stage) ? 2e-2 : 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(FlashLinearAttention, GoldenTest,
                         testing::Values(Golden{"gla", "gla", false}, Golden{"gla", "gla_d64", true},
                                         Golden{"gla", "gla_len1", true}, Golden{"gla", "gla_strong", true},
                                         Golden{"simple_gla", "simple_gla", false},
                                         Golden{"simple_gla", "simple_gla_d64", true},
                                         Golden{"simple_gla", "simple_gla_len1", true},
                                         Golden{"simple_gla", "simple_gla_strong", true}),
                         [](const auto& info) { return std::string(info.param.file); });

}  // namespace
}  // namespace tutorial
