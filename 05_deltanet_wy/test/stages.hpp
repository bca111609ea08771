#pragma once
/// @file
/// What the chapter's tests share, beside what those of all chapters do.

#include <cmath>

#include "common/device/device.hpp"
#include "common/test/small_problem.hpp"
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

/// Whether a problem may amplify rounding, as keys that are alike do, or that are too long.
enum class Rounding { usual, amplified };

/// Expects the outputs of a stage to be as close to the double reference as the runner asks for.
/// @param reference on the stage's inputs
inline void expect_right(const Operator& definition, const Stage& stage, const Problem& problem,
                         const Outputs& reference, Rounding rounding, const Layout& layout = {}) {
  if (rounding == Rounding::usual) {
    expect_close(evaluate(definition, stage, problem, layout), reference, tolerance_of(stage, problem.sizes));
  } else {
    EXPECT_LE(error_in_tolerances(definition, stage, problem, reference), 1) << stage.name;
  }
}

/// The largest error that keys that are alike may cost `tensor_core` of delta_rule, which rounds T to one bf16.
inline constexpr double kAlikeInOneBf16 = 0.3;

/// Runs every stage that supports the problem and expects its outputs to be as close to the double reference as the
/// runner asks for. The stages in fp32 and fp64 support every problem but chunks of more than 64 and Dk > 256 on a GPU.
/// Of those in bf16 only dispatch supports more than whole fragments, and it and `specialized_warps` normalise keys; seven
/// need a GPU of compute capability 9.0.
inline void expect_stages_match(const Problem& problem, const Layout& layout = {}, Rounding rounding = Rounding::usual,
                                const Operator& definition = delta_rule_operator()) {
  References references(definition, problem);
  int ran = 0, bf16_ran = 0;
  for (const Stage& stage : definition.stages()) {
    if (!why_not(definition, stage, problem, layout).empty()) continue;
    SCOPED_TRACE(stage.name);
    ++(is_bf16(stage) ? bf16_ran : ran);
    const Outputs& reference = references.of(stage);
    if (rounding == Rounding::amplified && stage.name == "tensor_core") {
      expect_close(evaluate(definition, stage, problem, layout), reference, kAlikeInOneBf16);
    } else {
      expect_right(definition, stage, problem, reference, rounding, layout);
    }
  }
  const std::int64_t Dk = problem.sizes.at("Dk"), Dv = problem.sizes.at("Dv");
  EXPECT_EQ(ran, Dk > 256 ? 4 : problem.sizes.at("C") > 64 ? 5 : 7);
  const bool is_aligned = Dk % 16 == 0 && Dv % 16 == 0 && layout.row_padding % 8 == 0;
  const bool normalizes = &definition == &normalized_operator();
  const int narrow = warpgroup_products_missing().empty() ? 11 : 4;
  EXPECT_EQ(bf16_ran, Dk > 256 || !is_aligned || Dv > 512 ? 1 : normalizes ? 2 : Dk > 128 ? 4 : narrow);
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
