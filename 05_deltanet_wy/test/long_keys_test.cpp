/// @file
/// Raw keys, 8 long or so, which nobody has normalised (a warning is given): a step then multiplies a part of the state by up
/// to 1 - beta |k|^2 = -63, and what of the state has been rounded grows with it. So the limit of a stage is not one number.
/// It is what rounding the inputs once more does to the reference (common/chapter/input_rounding.hpp), which goes through
/// the same steps, and the executable prints it.

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>

#include "05_deltanet_wy/test/stages.hpp"
#include "common/test/small_problem.hpp"

namespace tutorial {
namespace {

/// A problem of one head, with keys of 64 normal numbers.
Problem with_raw_keys(const Operator& definition, std::int64_t L, std::uint64_t seed) {
  ProblemRequest request{.sizes = {{"B", 1}, {"H", 1}, {"L", L}, {"Dk", 64}, {"Dv", 64}}, .seed = seed};
  Problem problem = make_problem(definition, request);
  Tensor& k = problem.inputs.at("k");
  normal()(Random(seed, "raw keys"), problem.sizes, k);
  round_to_bf16(k);
  const auto g = problem.inputs.find("g");
  if (g != problem.inputs.end() && seed % 3 > 0) fill(g->second, seed % 3 == 1 ? -0.5f : -1.0f);
  return problem;
}

class LongKeysTest : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(LongKeysTest, EveryStageIsWithinTheLimitThatIsPrinted) {
  const auto& [name, form] = GetParam();
  const Operator& definition = find_operator(name, form);
  // Nothing holds the state where there are no gates: it grows tenfold in a dozen of steps.
  const bool has_gates = has_input(definition, "g");
  for (const std::int64_t L : {1, 17, 64, 65}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE("L = " + std::to_string(L) + ", seed " + std::to_string(seed));
      const Problem problem = with_raw_keys(definition, has_gates ? L : std::min<std::int64_t>(L, 30), seed);
      const Outputs exact = evaluate_reference(definition, problem);
      const Outputs rounded = evaluate_reference(definition, problem, Dtype::bf16);
      int ran = 0;
      for (const Stage& stage : definition.stages()) {
        if (!why_not(definition, stage, problem).empty()) continue;
        ++ran;
        EXPECT_LE(error_in_tolerances(definition, stage, problem, is_bf16(stage) ? rounded : exact), 1) << stage.name;
      }
      EXPECT_GE(ran, 2);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, LongKeysTest,
                         testing::Combine(testing::Values("delta_rule", "gated_delta_rule", "kda"),
                                          testing::Values("", "backward")),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + (*std::get<1>(info.param) ? "_backward" : "");
                         });

}  // namespace
}  // namespace tutorial
