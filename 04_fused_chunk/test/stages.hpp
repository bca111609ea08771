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

inline bool is_half(const Stage& stage) {
  return size_of(stage.dtype) == 2;
}

/// Whether the stage takes widths that are no multiple of 16: the CPU does, and chapter 03's dispatch.
inline bool takes_any_width(const Stage& stage) {
  return !is_half(stage) || stage.name == "chapter_03" || stage.name == "dispatch";
}

/// A drawn problem.
inline Problem drawn(const Operator& definition, std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk,
                     std::int64_t Dv, std::int64_t C = 64) {
  return make_problem(definition,
                      {.sizes = {{"B", B}, {"H", H}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}, {"C", C}}, .seed = 3});
}

/// Expects every output to be within `tolerance` of the one of the same name.
inline void expect_close(const Outputs& outputs, const Outputs& expected, double tolerance) {
  for (const auto& [name, out] : outputs) {
    const Comparison c = compare(out, expected.at(name));
    EXPECT_TRUE(c.within(tolerance)) << "error " << c.error << ", " << describe(c, name);
  }
}

/// Runs every stage that takes the problem and expects its outputs to be as close to the double reference as the runner
/// asks for. Returns how many stages took it.
inline int expect_stages_match(const Operator& definition, const Problem& problem, const Layout& layout = {}) {
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
  return ran;
}

/// Of stages that take a problem: all of them, where widths are multiples of 16 and rows are aligned.
inline int all_stages(const Operator& definition) {
  return int(definition.stages().size());
}

}  // namespace tutorial
