#pragma once
/// @file
/// What the chapter's tests share, beside what those of all chapters do.

#include <cmath>

#include "common/device/device.hpp"
#include "common/test/stages.hpp"

namespace tutorial {

inline const Operator& delta_rule_operator() {
  return find_operator("delta_rule");
}

/// The form `--normalize-keys`.
inline const Operator& normalized_operator() {
  return find_operator("delta_rule", "normalize-keys");
}

/// A drawn problem.
inline Problem drawn(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv,
                     std::int64_t C = 64, const Operator& definition = delta_rule_operator()) {
  return make_problem(definition,
                      {.sizes = {{"B", B}, {"H", H}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}, {"C", C}}, .seed = 3});
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

/// The largest error that strongly correlated keys may cost a bf16 stage; the notebook has the measured ones.
inline constexpr double kCorrelated = 5e-2;
/// The same where T is rounded to one bf16 (`tensor_core`).
inline constexpr double kCorrelatedInOneBf16 = 0.3;

/// How far a stage may be from the double reference. @param bf16_tolerance of the bf16 stages; 0: the runner's
inline double allowed_error(const Stage& stage, const Sizes& sizes, double bf16_tolerance) {
  if (!is_bf16(stage) || bf16_tolerance == 0) return tolerance_of(stage, sizes);
  return stage.name == "tensor_core" ? kCorrelatedInOneBf16 : bf16_tolerance;
}

/// Runs every stage that supports the problem and expects its outputs to be as close to the double reference as the
/// runner asks for. The stages in fp32 and fp64 support every problem but chunks of more than 64 and Dk > 256 on a GPU.
/// Of those in bf16 only dispatch supports more than whole fragments, and it and `specialized_warps` normalise keys; seven
/// need a GPU of compute capability 9.0.
/// @param bf16_tolerance of the bf16 stages where keys are correlated; 0: the runner's
inline void expect_stages_match(const Problem& problem, const Layout& layout = {}, double bf16_tolerance = 0,
                                const Operator& definition = delta_rule_operator()) {
  const Outputs exact = evaluate_reference(definition, problem);
  const Outputs rounded = evaluate_reference(definition, problem, Dtype::bf16);
  int ran = 0, bf16_ran = 0;
  for (const Stage& stage : definition.stages()) {
    if (!why_not(definition, stage, problem, layout).empty()) continue;
    SCOPED_TRACE(stage.name);
    ++(is_bf16(stage) ? bf16_ran : ran);
    const double tolerance = allowed_error(stage, problem.sizes, bf16_tolerance);
    expect_close(evaluate(definition, stage, problem, layout), is_bf16(stage) ? rounded : exact, tolerance);
  }
  const std::int64_t Dk = problem.sizes.at("Dk"), Dv = problem.sizes.at("Dv");
  EXPECT_EQ(ran, Dk > 256 ? 4 : problem.sizes.at("C") > 64 ? 5 : 7);
  const bool is_aligned = Dk % 16 == 0 && Dv % 16 == 0 && layout.row_padding % 8 == 0;
  const bool normalizes = &definition == &normalized_operator();
  const int narrow = warpgroup_products_missing().empty() ? 11 : 4;
  EXPECT_EQ(bf16_ran, Dk > 256 ? 0 : !is_aligned || Dv > 512 ? 1 : normalizes ? 2 : Dk > 128 ? 4 : narrow);
}

/// Runs the gradients in `segments` and expects errors as the runner asks for, and not much larger than where the
/// sequence is walked at once.
/// @param whole the stage that does so
inline void expect_segments_match(const Problem& problem, const Operator& definition, const char* whole,
                                  double tolerance = 1e-2) {
  const Outputs truth = evaluate_reference(definition, problem, Dtype::bf16);
  const Outputs at_once = evaluate(definition, find_stage(definition, whole), problem);
  for (const auto& [name, out] : evaluate(definition, find_stage(definition, "segments"), problem)) {
    const double error = compare(name, out, truth).error;
    EXPECT_LE(error, 1.5 * compare(name, at_once.at(name), truth).error + 1e-6) << name;
    EXPECT_LE(error, tolerance) << name;
  }
}

}  // namespace tutorial
