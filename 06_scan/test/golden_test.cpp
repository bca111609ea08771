/// @file
/// Every stage, forwards and backwards, against tensors made with PyTorch (golden/README.md).

#include "06_scan/test/stages.hpp"
#include "common/safetensors.hpp"

namespace tutorial {
namespace {

class GoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTest, EveryStageAgrees) {
  const std::string path = std::string(GOLDEN_FOLDER "/") + GetParam() + ".safetensors";
  const SafetensorsFile file(path);
  for (const char* form : {"", "backward"}) {
    const Operator& definition = scan_operator(form);
    const Problem problem = make_problem(definition, {.input_file = path});
    EXPECT_FALSE(problem.inputs.contains("initial_state")) << "it is zeros unless given";
    Outputs expected;
    for (const char* name : {"y", "dx", "dlog_decay"}) {
      if (!file.contains(name)) continue;
      Tensor tensor = file.read(name);
      Shape shape(tensor.shape().begin(), tensor.shape().begin() + 3);
      shape.push_back(tensor.size() / element_count(shape));
      tensor.reshape(shape);
      expected.insert_or_assign(name, std::move(tensor));
    }
    for (const Stage& stage : definition.stages()) {
      if (is_for_one_layout(stage)) continue;  // D > 1
      SCOPED_TRACE(definition.label() + " " + stage.name);
      ASSERT_EQ(why_not(definition, stage, problem), "");
      int compared = 0;
      for (const auto& [name, output] : evaluate(definition, stage, problem)) {
        if (!expected.contains(name)) continue;
        ++compared;
        const Comparison c = compare(output, expected.at(name));
        EXPECT_TRUE(c.within(1e-5)) << "error " << c.error << ", " << describe(c, name);
      }
      EXPECT_EQ(compared, *form == 0 ? 1 : file.contains("dx") ? 2 : 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(PyTorch, GoldenTest,
                         testing::Values("monoid_scan", "monoid_scan_d64", "monoid_scan_len1", "monoid_scan_strong"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tutorial
