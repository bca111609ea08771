#pragma once
/// @file
/// What the chapter's tests share: going through the stages of the table of contents.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "common/chapter/chapter.hpp"
#include "common/chapter/evaluate.hpp"
#include "common/chapter/run_operator.hpp"
#include "common/compare.hpp"

namespace tutorial {

/// @param variant "" or "backward"
inline const Operator& scan_operator(const char* variant = "") {
  static const Chapter contents = chapter();
  for (const Operator& definition : contents.operators()) {
    if (definition.name() == "scan" && definition.variant() == variant) return definition;
  }
  throw std::logic_error(std::string("no operator scan --") + variant);
}

inline const Stage& find_stage(const Operator& definition, const char* name) {
  const Stage* stage = definition.find(name);
  if (!stage) throw std::logic_error(std::string("no stage ") + name);
  return *stage;
}

/// A drawn problem, with an initial state. Dg is 1 or D.
inline Problem drawn(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t D, std::int64_t Dg,
                     const Operator& definition = scan_operator()) {
  return make_problem(definition, {.sizes = {{"B", B}, {"H", H}, {"L", L}, {"D", D}, {"Dg", Dg}}, .seed = 3});
}

/// Expects every output to be within `tolerance` of the one of the same name.
inline void expect_close(const Outputs& outputs, const Outputs& expected, double tolerance) {
  for (const auto& [name, out] : outputs) {
    const Comparison c = compare(out, expected.at(name));
    EXPECT_TRUE(c.within(tolerance)) << "error " << c.error << ", " << describe(c, name);
  }
}

/// Runs one stage and expects its outputs to be as close to the double reference as the runner asks for.
inline void expect_stage_matches(const char* name, const Problem& problem,
                                 const Operator& definition = scan_operator()) {
  const Stage& stage = find_stage(definition, name);
  expect_close(evaluate(definition, stage, problem), evaluate_reference(definition, problem),
               tolerance_of(stage, problem.sizes));
}

/// Runs every stage that takes the problem and expects its outputs to be as close to the double reference as the runner
/// asks for. CUB's stage alone refuses: D > 1, strides, or a build without CUDA.
inline void expect_stages_match(const Problem& problem, const Layout& layout = {},
                                const Operator& definition = scan_operator()) {
  const Outputs expected = evaluate_reference(definition, problem);
  for (const Stage& stage : definition.stages()) {
    SCOPED_TRACE(stage.name);
    const std::string reason = why_not(definition, stage, problem, layout);
    if (stage.name == "cub" && !reason.empty()) continue;
    ASSERT_EQ(reason, "");
    expect_close(evaluate(definition, stage, problem, layout), expected, tolerance_of(stage, problem.sizes));
  }
}

}  // namespace tutorial
