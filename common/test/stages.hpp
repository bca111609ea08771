#pragma once
/// @file
/// What the tests of all chapters share: going through the stages of the table of contents.

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <string_view>

#include "common/chapter/chapter.hpp"
#include "common/chapter/evaluate.hpp"
#include "common/chapter/run_operator.hpp"
#include "common/compare.hpp"

namespace tutorial {

/// The chapter's operator of this name, or its form. std::logic_error where there is none.
inline const Operator& find_operator(std::string_view name, std::string_view form = "") {
  static const Chapter contents = chapter();
  for (const Operator& definition : contents.operators()) {
    if (definition.name() == name && definition.form() == form) return definition;
  }
  throw std::logic_error("no operator " + std::string(name));
}

/// The operator's stage of this name. std::logic_error where there is none.
inline const Stage& find_stage(const Operator& definition, const char* name) {
  const Stage* stage = definition.find(name);
  if (!stage) throw std::logic_error(std::string("no stage ") + name);
  return *stage;
}

/// Whether it is an operator with heads that share queries and keys (--key-heads): the stages of another one on other
/// strides, with tests of their own.
inline bool shares_heads(const Operator& definition) {
  return definition.has_symbol("Hk");
}

/// Whether the stage takes and gives bf16.
inline bool is_bf16(const Stage& stage) {
  return size_of(stage.dtype) == 2;
}

/// Sets every element.
inline void fill(Tensor& tensor, float value) {
  for (float& x : tensor.elements<float>()) x = value;
}

/// Expects every output to be within `tolerance` of the one of the same name.
inline void expect_close(const Outputs& outputs, const Outputs& expected, double tolerance) {
  for (const auto& [name, out] : outputs) {
    const Comparison c = compare(name, out, expected);
    EXPECT_TRUE(c.within(tolerance)) << "error " << c.error << ", " << describe(c, name);
  }
}

/// Runs every stage that supports the problem and expects its outputs to be as close to the double reference as the
/// runner asks for. Returns how many stages did.
inline int expect_supporting_stages_match(const Operator& definition, const Problem& problem,
                                          const Layout& layout = {}) {
  const Outputs exact = evaluate_reference(definition, problem);
  const Outputs rounded = evaluate_reference(definition, problem, Dtype::bf16);
  int ran = 0;
  for (const Stage& stage : definition.stages()) {
    if (!why_not(definition, stage, problem, layout).empty()) continue;
    SCOPED_TRACE(definition.name() + " " + stage.name);
    ++ran;
    expect_close(evaluate(definition, stage, problem, layout), is_bf16(stage) ? rounded : exact,
                 tolerance_of(stage, problem.sizes));
  }
  return ran;
}

}  // namespace tutorial
