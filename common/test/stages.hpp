#pragma once
/// @file
/// What the tests of all chapters share: going through the stages of the table of contents.

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
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

/// Layouts other than [B, H, L, D] without gaps, which most tests have: padding that leaves rows aligned to 16 bytes, heads
/// inside positions, as PyTorch's [B, L, H, D], both, and padding that does not.
inline constexpr Layout kOddLayouts[] = {{.row_padding = 8},
                                         {.heads_inside = true},
                                         {.heads_inside = true, .row_padding = 8},
                                         {.heads_inside = true, .row_padding = 3}};

/// One of them, for messages.
inline std::string name_of(const Layout& layout) {
  return std::string(layout.heads_inside ? "[B, L, H, D]" : "[B, H, L, D]") + ", padding " +
         std::to_string(layout.row_padding);
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

/// The double references of a problem: on its inputs for stages in fp32 and fp64, and on these in bf16 for the others. Each
/// is computed when the first stage asks for it, and where bf16 has the inputs as they are, as it has those that are
/// drawn, both are one: they are half of the time of many tests.
class References {
 public:
  References(const Operator& definition, const Problem& problem) : definition_(definition), problem_(problem) {}

  const Outputs& of(const Stage& stage) {
    if (!is_one_) is_one_ = !definition_.has_bf16_reference() && bf16_has_inputs();
    const bool is_rounded = is_bf16(stage) && !*is_one_;
    std::optional<Outputs>& outputs = is_rounded ? rounded_ : exact_;
    if (!outputs) outputs = evaluate_reference(definition_, problem_, is_rounded ? Dtype::bf16 : Dtype::fp32);
    return *outputs;
  }

 private:
  bool bf16_has_inputs() const {
    return std::ranges::all_of(definition_.inputs(), [&](const Input& input) {
      const auto found = problem_.inputs.find(input.name);
      if (found == problem_.inputs.end() || !input.bf16 || input.dtype != Dtype::fp32) return true;
      const Tensor rounded = found->second.to(Dtype::bf16).to(Dtype::fp32);
      return std::ranges::equal(rounded.elements<float>(), found->second.elements<float>());  // NaN is unlike itself
    });
  }

  const Operator& definition_;
  const Problem& problem_;
  std::optional<bool> is_one_;
  std::optional<Outputs> exact_, rounded_;
};

/// Runs every stage that supports the problem and expects its outputs to be as close to the double reference as the
/// runner asks for. Returns how many stages did.
inline int expect_supporting_stages_match(const Operator& definition, const Problem& problem,
                                          const Layout& layout = {}) {
  References references(definition, problem);
  int ran = 0;
  for (const Stage& stage : definition.stages()) {
    if (!why_not(definition, stage, problem, layout).empty()) continue;
    SCOPED_TRACE(definition.name() + " " + stage.name);
    ++ran;
    expect_close(evaluate(definition, stage, problem, layout), references.of(stage),
                 tolerance_of(stage, problem.sizes));
  }
  return ran;
}

}  // namespace tutorial
