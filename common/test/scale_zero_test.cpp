/// @file
/// A scale of 0: o is 0, and so are all gradients but those of dfinal_state. Part of the tests of every chapter whose
/// operators take a scale. GPU stages of gradients keep dS / scale.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/random.hpp"
#include "common/test/stages.hpp"

namespace tutorial {
namespace {

/// A small problem of scale 0. Inputs that are absent unless a file gives them, such as dfinal_state, are there if asked.
Problem problem_of(const Operator& definition, bool with_optional) {
  ProblemRequest request{.scale = 0, .seed = 7, .modest = true};
  for (const auto& [symbol, size] : {std::pair("B", std::int64_t{1}), {"L", 20}, {"P", 10}, {"Dk", 16}, {"Dv", 16}}) {
    if (std::ranges::count(definition.symbols(), symbol) > 0) request.sizes[symbol] = size;
  }
  Problem problem = make_problem(definition, request);
  for (const Input& input : definition.inputs()) {
    if (!with_optional || !input.optional || input.dtype != Dtype::fp32) continue;
    Tensor tensor(Dtype::fp32, shape_of(input.dims, problem.sizes));
    normal()(Random(problem.seed, input.name), problem.sizes, tensor);
    problem.inputs.insert_or_assign(input.name, std::move(tensor));
  }
  return problem;
}

TEST(ScaleZeroTest, EveryStageIsRight) {
  const Chapter contents = chapter();
  for (const Operator& definition : contents.operators()) {
    if (!definition.takes_scale() || definition.has_symbol("N")) continue;  // several devices have tests of their own
    if (shares_heads(definition)) continue;
    SCOPED_TRACE(definition.label());
    for (const bool with_optional : {false, true}) {
      EXPECT_GE(expect_supporting_stages_match(definition, problem_of(definition, with_optional)), 1);
    }
  }
}

}  // namespace
}  // namespace tutorial
