/// @file
/// Every stage against tensors made with fast-transformers (golden/README.md).

#include "01_linear_attention/test/stages.hpp"
#include "common/safetensors.hpp"

namespace tutorial {
namespace {

struct Golden {
  const char* operator_name;
  const char* file;
  double tolerance;
};

// For the type of a parameter to have a readable name in the test's name.
void PrintTo(const Golden& golden, std::ostream* out) {
  *out << golden.file;
}

class GoldenTest : public testing::TestWithParam<Golden> {};

TEST_P(GoldenTest, EveryStageAgrees) {
  const std::string path = std::string(GOLDEN_FOLDER "/") + GetParam().file + ".safetensors";
  const SafetensorsFile file(path);
  for (const char* form : {"", "backward"}) {
    const Operator& definition = find_operator(GetParam().operator_name, form);
    if (!file.contains(definition.outputs().front().name)) continue;  // some files have no gradients
    const Problem problem = make_problem(definition, {.input_file = path});
    Outputs expected;
    for (const Output& output : definition.outputs()) expected.insert_or_assign(output.name, file.read(output.name));
    for (const Stage& stage : definition.stages()) {
      SCOPED_TRACE(definition.label() + " " + stage.name);
      ASSERT_EQ(why_not(definition, stage, problem), "");
      expect_close(evaluate(definition, stage, problem), expected, GetParam().tolerance);
    }
  }
}

constexpr double kFp32 = 1e-5;

INSTANTIATE_TEST_SUITE_P(
    FastTransformers, GoldenTest,
    testing::Values(Golden{"causal_dot_product", "causal_dot_product", kFp32},
                    Golden{"causal_dot_product", "causal_dot_product_d64", kFp32},
                    Golden{"causal_dot_product", "causal_dot_product_len1", kFp32},
                    Golden{"causal_dot_product", "causal_dot_product_strong", kFp32},
                    Golden{"causal_attention", "linear_attention_causal", kFp32},
                    Golden{"causal_attention", "linear_attention_causal_d64", kFp32},
                    Golden{"causal_attention", "linear_attention_causal_len1", kFp32},
                    Golden{"causal_attention", "linear_attention_causal_strong", kFp32},
                    // Its features are so small that (exp(x) - 1) + 1, as fast-transformers computes them, has lost
                    // digits: the file itself is off by up to 2e-4. Our stages agree with each other to 1e-5 there,
                    // see NumbersTest.
                    Golden{"causal_attention", "linear_attention_causal_tiny", 2e-4},
                    Golden{"bidirectional_attention", "linear_attention_bidirectional", kFp32},
                    Golden{"bidirectional_attention", "linear_attention_bidirectional_cross", kFp32},
                    Golden{"bidirectional_attention", "linear_attention_bidirectional_d64", kFp32},
                    Golden{"bidirectional_attention", "linear_attention_bidirectional_len1", kFp32},
                    Golden{"bidirectional_attention", "linear_attention_bidirectional_strong", kFp32}),
    [](const auto& info) { return std::string(info.param.file); });

}  // namespace
}  // namespace tutorial
