#pragma once
/// @file
/// What the tests of simple_gla and delta_rule share. Chapters 04 and 05 test their own stages; here they are only run
/// on golden files.

#include <array>

#include "06_scan/test/stages.hpp"
#include "common/safetensors.hpp"

namespace tutorial {

/// @param name "simple_gla" or "delta_rule"
inline const Operator& state_operator(const char* name) {
  static const Chapter contents = chapter();
  for (const Operator& definition : contents.operators()) {
    if (definition.name() == name) return definition;
  }
  throw std::logic_error(std::string("no operator ") + name);
}

/// A drawn problem, with an initial state.
inline Problem drawn_states(const Operator& definition, std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk,
                            std::int64_t Dv) {
  return make_problem(definition, {.sizes = {{"B", B}, {"H", H}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}}, .seed = 3});
}

/// Whether the stage is one of this chapter's.
inline bool is_scan(const Stage& stage) {
  return stage.name.starts_with("scan_") || stage.name == "affine_chain";
}

/// Runs the scans and expects their outputs to be as close to the double reference as the runner asks for.
inline void expect_scans_match(const Operator& definition, const Problem& problem, const Layout& layout = {}) {
  const Outputs expected = evaluate_reference(definition, problem);
  for (const Stage& stage : definition.stages()) {
    if (!is_scan(stage)) continue;
    SCOPED_TRACE(stage.name);
    ASSERT_EQ(why_not(definition, stage, problem, layout), "");
    expect_close(evaluate(definition, stage, problem, layout), expected, tolerance_of(stage, problem.sizes));
  }
}

/// The same for a drawn problem of these sizes.
inline void expect_scans_match(const Operator& definition, std::int64_t B, std::int64_t H, std::int64_t L,
                               std::int64_t Dk, std::int64_t Dv, const Layout& layout = {}) {
  SCOPED_TRACE(definition.name() + " B " + std::to_string(B) + ", H " + std::to_string(H) + ", L " + std::to_string(L) +
               ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
  expect_scans_match(definition, drawn_states(definition, B, H, L, Dk, Dv), layout);
}

/// Every stage that takes a golden file gives its outputs, and the scans do take it.
inline void expect_golden(const Operator& definition, const std::string& file_name) {
  const std::string path = GOLDEN_FOLDER "/" + file_name + ".safetensors";
  const Problem problem = make_problem(definition, {.input_file = path});
  const SafetensorsFile file(path);
  Outputs expected;
  for (const char* name : {"o", "final_state"}) expected.insert_or_assign(name, file.read(name));
  for (const Stage& stage : definition.stages()) {
    SCOPED_TRACE(stage.name);
    const bool is_bf16 = size_of(stage.dtype) == 2;
    const std::string reason = why_not(definition, stage, problem);
    if (is_bf16 && !reason.empty()) continue;  // widths that are no multiple of 16
    ASSERT_EQ(reason, "");
    expect_close(evaluate(definition, stage, problem), expected, is_bf16 ? 2e-2 : 1e-5);
  }
}

}  // namespace tutorial
