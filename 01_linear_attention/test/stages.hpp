#pragma once
/// @file
/// What the chapter's tests share, beside what those of all chapters do.

#include "common/test/stages.hpp"

namespace tutorial {

/// Runs every stage that takes the problem and expects each output to be within `tolerance` of the double reference. At
/// least two do.
inline void expect_stages_match(const Operator& definition, const Problem& problem, double tolerance = 1e-5,
                                const Layout& layout = {}) {
  const Outputs truth = evaluate_reference(definition, problem);
  int ran = 0;
  for (const Stage& stage : definition.stages()) {
    if (!why_not(definition, stage, problem, layout).empty()) continue;
    SCOPED_TRACE(definition.label() + " " + stage.name);
    ++ran;
    expect_close(evaluate(definition, stage, problem, layout), truth, tolerance);
  }
  EXPECT_GE(ran, 2) << "a problem that hardly any stage takes tests little";
}

}  // namespace tutorial
