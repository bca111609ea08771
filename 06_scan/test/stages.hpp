#pragma once
/// @file
/// What the chapter's tests share, beside what those of all chapters do.

#include "common/test/stages.hpp"

namespace tutorial {

/// @param form "" or "backward"
inline const Operator& scan_operator(const char* form = "") {
  return find_operator("scan", form);
}

/// A drawn problem, with an initial state. Dg is 1 or D.
inline Problem drawn(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t D, std::int64_t Dg,
                     const Operator& definition = scan_operator()) {
  return make_problem(definition, {.sizes = {{"B", B}, {"H", H}, {"L", L}, {"D", D}, {"Dg", Dg}}, .seed = 3});
}

/// Whether the stage refuses most layouts.
inline bool is_for_one_layout(const Stage& stage) {
  return stage.name == "cub" || stage.name == "wide_tiles";
}

/// Runs one stage and expects its outputs to be as close to the double reference as the runner asks for.
inline void expect_stage_matches(const char* name, const Problem& problem,
                                 const Operator& definition = scan_operator()) {
  const Stage& stage = find_stage(definition, name);
  expect_close(evaluate(definition, stage, problem), evaluate_reference(definition, problem),
               tolerance_of(stage, problem.sizes));
}

/// Runs every stage that takes the problem and expects its outputs to be as close to the double reference as the runner
/// asks for. `cub` and `wide_tiles` alone refuse: D > 1, strides, or a build without CUDA.
inline void expect_stages_match(const Problem& problem, const Layout& layout = {},
                                const Operator& definition = scan_operator()) {
  const Outputs expected = evaluate_reference(definition, problem);
  for (const Stage& stage : definition.stages()) {
    SCOPED_TRACE(stage.name);
    const std::string reason = why_not(definition, stage, problem, layout);
    if (is_for_one_layout(stage) && !reason.empty()) continue;
    ASSERT_EQ(reason, "");
    expect_close(evaluate(definition, stage, problem, layout), expected, tolerance_of(stage, problem.sizes));
  }
}

}  // namespace tutorial
