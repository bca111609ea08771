#pragma once
/// @file
/// What the chapter's tests share: going through the stages of the table of contents.

#include <gtest/gtest.h>

#include <string>

#include "common/chapter/chapter.hpp"
#include "common/chapter/evaluate.hpp"
#include "common/compare.hpp"

namespace tutorial {

inline const Operator& find_operator(const char* name) {
  static const Chapter contents = chapter();
  for (const Operator& definition : contents.operators()) {
    if (definition.name() == name) return definition;
  }
  throw std::logic_error(std::string("no operator ") + name);
}

inline const Stage& find_stage(const Operator& definition, const char* name) {
  const Stage* stage = definition.find(name);
  if (!stage) throw std::logic_error(std::string("no stage ") + name);
  return *stage;
}

/// Runs every stage that takes the problem and expects each output to be within `tolerance` of the double reference.
inline void expect_stages_match(const Operator& definition, const Problem& problem, double tolerance = 1e-5,
                                const Layout& layout = {}) {
  const Outputs truth = evaluate_reference(definition, problem);
  int ran = 0;
  for (const Stage& stage : definition.stages()) {
    if (!why_not(definition, stage, problem, layout).empty()) continue;
    SCOPED_TRACE(definition.name() + " " + stage.name);
    ++ran;
    const Comparison c = compare(evaluate(definition, stage, problem, layout).at("o"), truth.at("o"));
    EXPECT_TRUE(c.within(tolerance)) << "error " << c.error << ", " << describe(c, "o");
  }
  EXPECT_GE(ran, 3) << "a problem that hardly any stage takes tests little";
}

}  // namespace tutorial
