#pragma once
/// @file
/// What the chapter's tests share: going through the stages of the table of contents.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "common/chapter/chapter.hpp"
#include "common/chapter/evaluate.hpp"
#include "common/chapter/run_operator.hpp"
#include "common/compare.hpp"

namespace tutorial {

inline const Operator& delta_rule_operator() {
  static const Chapter contents = chapter();
  return contents.operators().front();
}

/// The variant `--normalize-keys`.
inline const Operator& normalized_operator() {
  static const Chapter contents = chapter();
  return contents.operators().back();
}

inline const Stage& find_stage(const Operator& definition, const char* name) {
  const Stage* stage = definition.find(name);
  if (!stage) throw std::logic_error(std::string("no stage ") + name);
  return *stage;
}

inline bool is_half(const Stage& stage) {
  return size_of(stage.dtype) == 2;
}

/// A drawn problem.
inline Problem drawn(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv,
                     std::int64_t C = 64, const Operator& definition = delta_rule_operator()) {
  return make_problem(definition,
                      {.sizes = {{"B", B}, {"H", H}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}, {"C", C}}, .seed = 3});
}

inline void fill(Tensor& tensor, float value) {
  for (float& x : tensor.elements<float>()) x = value;
}

/// Makes all keys of a problem have this cosine with each other, about, and length 1.
inline void correlate(Problem& problem, double cosine) {
  Tensor& k = problem.inputs.at("k");
  const auto width = std::size_t(k.shape().back());
  const auto elements = k.elements<float>();
  const double own = std::sqrt(1 - cosine), common = std::sqrt(cosine / double(width));
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = float(own * double(elements[i]) + common);
  round_to_bf16(k);
}

/// Expects every output to be within `tolerance` of the one of the same name.
inline void expect_close(const Outputs& outputs, const Outputs& expected, double tolerance) {
  for (const auto& [name, out] : outputs) {
    const Comparison c = compare(out, expected.at(name));
    EXPECT_TRUE(c.within(tolerance)) << "error " << c.error << ", " << describe(c, name);
  }
}

/// The largest error that strongly correlated keys may cost a bf16 stage; the README has the measured ones.
inline constexpr double kCorrelated = 5e-2;

/// Runs every stage that takes the problem and expects its outputs to be as close to the double reference as the runner
/// asks for. The stages in fp32 and fp64 take any, but for chunks of more than 64 and Dk > 256 on a GPU; dispatch is
/// the one in bf16 that takes more than the tensor cores.
/// @param half_tolerance of the bf16 stages; 0: the runner's
inline void expect_stages_match(const Problem& problem, const Layout& layout = {}, double half_tolerance = 0,
                                const Operator& definition = delta_rule_operator()) {
  const Outputs exact = evaluate_reference(definition, problem);
  const Outputs rounded = evaluate_reference(definition, problem, Dtype::bf16);
  int ran = 0, half_ran = 0;
  for (const Stage& stage : definition.stages()) {
    if (!why_not(definition, stage, problem, layout).empty()) continue;
    SCOPED_TRACE(stage.name);
    ++(is_half(stage) ? half_ran : ran);
    const double tolerance = is_half(stage) && half_tolerance > 0 ? half_tolerance : tolerance_of(stage, problem.sizes);
    expect_close(evaluate(definition, stage, problem, layout), is_half(stage) ? rounded : exact, tolerance);
  }
  const std::int64_t Dk = problem.sizes.at("Dk"), Dv = problem.sizes.at("Dv");
  EXPECT_EQ(ran, Dk > 256 ? 4 : problem.sizes.at("C") > 64 ? 5 : 6);
  const bool is_aligned = Dk % 16 == 0 && Dv % 16 == 0 && layout.row_padding % 8 == 0;
  EXPECT_EQ(half_ran, Dk > 256 ? 0 : is_aligned && Dv <= 512 ? 3 : 1);
}

}  // namespace tutorial
