#pragma once
/// @file
/// What the tests of `decode` share.

#include <stdexcept>
#include <string>

#include "06_scan/decode.hpp"
#include "06_scan/decode/dispatch/step.hpp"
#include "06_scan/test/stages.hpp"

namespace tutorial {

/// The operator as the command line names it: "decode", "decode --gla", "decode --delta-rule" and so on.
inline const Operator& decode_operator(const char* label) {
  static const Chapter contents = chapter();
  for (const Operator& definition : contents.operators()) {
    if (definition.label() == label) return definition;
  }
  throw std::logic_error(std::string("no operator ") + label);
}

inline constexpr const char* kDecodeLabels[] = {
    "decode",       "decode --gla",       "decode --delta-rule", "decode --gated-delta-rule",
    "decode --kda", "decode --normalized"};

/// A drawn problem, with initial states.
inline Problem drawn_tokens(const Operator& definition, std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t P,
                            std::int64_t Dk, std::int64_t Dv) {
  return make_problem(definition,
                      {.sizes = {{"B", B}, {"H", H}, {"L", L}, {"P", P}, {"Dk", Dk}, {"Dv", Dv}}, .seed = 3});
}

/// `dispatch` with a given tile.
inline Outputs evaluate_with_tile(const Operator& definition, const Problem& problem, decode::Tile tile,
                                  const Layout& layout = {}) {
  using namespace decode;
  StageTensors tensors(definition, problem, Processor::gpu, Dtype::bf16, Dtype::fp32, layout);
  const auto a = Bf16Arguments::bind(tensors.call());
  const std::string& form = definition.form();
  if (form.empty()) planned_step<Rule::simple_gla>(a, tile);
  if (form == "gla") planned_step<Rule::gla>(a, tile);
  if (form == "delta-rule") planned_step<Rule::delta_rule>(a, tile);
  if (form == "gated-delta-rule") planned_step<Rule::gated_delta_rule>(a, tile);
  if (form == "kda") planned_step<Rule::kda>(a, tile);
  if (form == "normalized") planned_step<Rule::normalized>(a, tile);
  return tensors.download_outputs();
}

/// Runs every stage, `dispatch` with both tiles, and expects its outputs to be as close to the double reference as the
/// runner asks for.
inline void expect_tokens_match(const Operator& definition, const Problem& problem, const Layout& layout = {}) {
  const Outputs expected = evaluate_reference(definition, problem, Dtype::bf16);
  for (const Stage& stage : definition.stages()) {
    SCOPED_TRACE(definition.label() + ", " + stage.name);
    const std::string reason = why_not(definition, stage, problem, layout);
    const bool needs_aligned_rows = stage.name == "step_in_registers" || stage.name == "replay";
    if (needs_aligned_rows && !reason.empty()) continue;  // of a state
    ASSERT_EQ(reason, "");
    if (stage.name == "recurrent") continue;  // the reference itself
    if (stage.name != "dispatch") {
      expect_close(evaluate(definition, stage, problem, layout), expected, tolerance_of(stage, problem.sizes));
      continue;
    }
    for (const decode::Tile tile : {decode::Tile::narrow, decode::Tile::wide}) {
      SCOPED_TRACE(std::to_string(int(tile)) + " columns");
      expect_close(evaluate_with_tile(definition, problem, tile, layout), expected, tolerance_of(stage, problem.sizes));
    }
  }
}

}  // namespace tutorial
