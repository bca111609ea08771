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

inline const Operator& linear_attention_operator() {
  static const Chapter contents = chapter();
  return *contents.operators().begin();
}

inline const Stage& find_stage(const char* name) {
  const Stage* stage = linear_attention_operator().find(name);
  if (!stage) throw std::logic_error(std::string("no stage ") + name);
  return *stage;
}

inline bool is_half(const Stage& stage) {
  return size_of(stage.dtype) == 2;
}

/// Expects every output to be within `tolerance` of the one of the same name.
inline void expect_close(const Outputs& outputs, const Outputs& expected, double tolerance) {
  for (const auto& [name, out] : outputs) {
    const Comparison c = compare(out, expected.at(name));
    EXPECT_TRUE(c.within(tolerance)) << "error " << c.error << ", " << describe(c, name);
  }
}

/// Runs every stage that takes the problem and expects its outputs to be as close to the double reference as the runner
/// asks for.
/// @param fewest stages that have to take it: a problem that hardly any stage takes tests little
inline void expect_stages_match(const Problem& problem, const Layout& layout = {}, int fewest = 5) {
  const Operator& definition = linear_attention_operator();
  const Outputs exact = evaluate_reference(definition, problem);
  const Outputs rounded = evaluate_reference(definition, problem, Dtype::bf16);
  int ran = 0;
  for (const Stage& stage : definition.stages()) {
    if (!why_not(definition, stage, problem, layout).empty()) continue;
    SCOPED_TRACE(stage.name);
    ++ran;
    expect_close(evaluate(definition, stage, problem, layout), is_half(stage) ? rounded : exact,
                 tolerance_of(stage, problem.sizes));
  }
  EXPECT_GE(ran, fewest);
}

}  // namespace tutorial
