/// @file
/// Every stage of `decode`, with prompts of several lengths, against tensors made by others (golden/README.md).

#include "06_scan/test/decode_stages.hpp"
#include "common/safetensors.hpp"

namespace tutorial {
namespace {

struct Golden {
  const char *label, *file;
};

class DecodeGoldenTest : public testing::TestWithParam<Golden> {};

TEST_P(DecodeGoldenTest, EveryStageAgreesWhateverThePrompt) {
  const Operator& definition = decode_operator(GetParam().label);
  const std::string path = std::string(GOLDEN_FOLDER "/") + GetParam().file + ".safetensors";
  const SafetensorsFile file(path);
  Outputs expected;
  for (const char* name : {"o", "final_state"}) {
    if (file.contains(name)) expected.insert_or_assign(name, file.read(name));
  }
  const std::int64_t L = file.shape("v")[2];
  for (const std::int64_t P : std::set<std::int64_t>{0, 1, L / 2, L - 1, L}) {
    const Problem problem = make_problem(definition, {.sizes = {{"P", P}}, .input_file = path});
    EXPECT_EQ(problem.inputs.contains("initial_state"), file.contains("initial_state")) << "zeros unless given";
    const Outputs rounded = evaluate_reference(definition, problem, Dtype::bf16);
    for (const Stage& stage : definition.stages()) {
      SCOPED_TRACE(stage.name + ", prompt of " + std::to_string(P));
      const std::string reason = why_not(definition, stage, problem);
      if (stage.name == "step_in_registers" && !reason.empty()) continue;  // rows of a state that are not aligned
      ASSERT_EQ(reason, "");
      const bool is_bf16 = size_of(stage.dtype) == 2;
      Outputs outputs = evaluate(definition, stage, problem);
      if (is_bf16) expect_close(outputs, rounded, 1e-2);
      std::erase_if(outputs, [&](const auto& output) { return !expected.contains(output.first); });
      EXPECT_EQ(outputs.size(), expected.size());
      expect_close(outputs, expected, is_bf16 ? 2e-2 : 1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, DecodeGoldenTest,
                         testing::Values(Golden{"decode", "simple_gla"}, Golden{"decode", "simple_gla_d64"},
                                         Golden{"decode", "simple_gla_len1"}, Golden{"decode", "simple_gla_strong"},
                                         Golden{"decode --gla", "gla"}, Golden{"decode --gla", "gla_d64"},
                                         Golden{"decode --gla", "gla_len1"}, Golden{"decode --gla", "gla_strong"},
                                         Golden{"decode --delta-rule", "delta_rule"},
                                         Golden{"decode --delta-rule", "delta_rule_d64"},
                                         Golden{"decode --delta-rule", "delta_rule_len1"},
                                         Golden{"decode --delta-rule", "delta_rule_strong"},
                                         Golden{"decode --gated-delta-rule", "gated_delta_rule"},
                                         Golden{"decode --gated-delta-rule", "gated_delta_rule_strong"},
                                         Golden{"decode --kda", "kda"}, Golden{"decode --kda", "kda_strong"},
                                         Golden{"decode --normalized", "linear_attention_causal"},
                                         Golden{"decode --normalized", "linear_attention_causal_d64"},
                                         Golden{"decode --normalized", "linear_attention_causal_len1"},
                                         Golden{"decode --normalized", "linear_attention_causal_strong"}),
                         [](const auto& info) { return std::string(info.param.file); });

// Features so small that eps decides; the file is off by up to 2e-4, and bf16 leaves q = -12 with an error of 2%.
TEST(DecodeGoldenTest, SmallFeatures) {
  const Operator& definition = decode_operator("decode --normalized");
  const std::string path = GOLDEN_FOLDER "/linear_attention_causal_tiny.safetensors";
  const Tensor o = SafetensorsFile(path).read("o");
  for (const std::int64_t P : {0, 20, 40}) {
    const Problem problem = make_problem(definition, {.sizes = {{"P", P}}, .input_file = path});
    const Outputs rounded = evaluate_reference(definition, problem, Dtype::bf16);
    for (const Stage& stage : definition.stages()) {
      SCOPED_TRACE(stage.name + ", prompt of " + std::to_string(P));
      const Outputs outputs = evaluate(definition, stage, problem);
      if (size_of(stage.dtype) == 2) {
        expect_close(outputs, rounded, 1e-2);
      } else {
        EXPECT_TRUE(compare(outputs.at("o"), o).within(2e-4));
      }
    }
  }
}

}  // namespace
}  // namespace tutorial
