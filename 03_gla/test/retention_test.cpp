/// @file
/// Retention is gla with one constant gate per head.

#include <algorithm>
#include <cmath>

#include "03_gla/test/stages.hpp"

namespace tutorial {
namespace {

constexpr std::int64_t B = 1, H = 22, L = 90, Dk = 24, Dv = 20;

/// The gla problem that a retention problem is.
Problem with_gates(const Problem& retention) {
  Problem problem = gla_problem(B, H, L, Dk, Dv);
  for (const auto& [name, tensor] : retention.inputs) problem.inputs.insert_or_assign(name, tensor.to(Dtype::fp32));
  const auto g = problem.inputs.at("g").elements<float>();
  for (std::size_t i = 0; i < g.size(); ++i) {
    const auto h = i / (L * Dk) % H;
    g[i] = float(std::log1p(-std::pow(2.0, -5.0 - double(h))));
  }
  return problem;
}

TEST(RetentionTest, IsGlaWithConstantGates) {
  const Operator& retention = find_operator("retention");
  const Problem problem =
      make_problem(retention, {.sizes = {{"B", B}, {"H", H}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}}, .seed = 7});
  const Problem gated = with_gates(problem);
  const auto expect_same = [&](const char* stage, const char* gla_stage) {
    const Outputs outputs = evaluate(retention, find_stage(retention, stage), problem);
    const Outputs expected = evaluate(gla_operator(), find_stage(gla_operator(), gla_stage), gated);
    for (const auto& [name, tensor] : outputs) {
      EXPECT_TRUE(std::ranges::equal(tensor.elements<float>(), expected.at(name).elements<float>()))
          << stage << " " << name;
    }
  };
  expect_same("gpu_bf16", "dispatch");
  expect_close(evaluate(retention, find_stage(retention, "gpu"), problem), evaluate_reference(retention, problem),
               1e-5);
  expect_close(evaluate_reference(retention, problem), evaluate_reference(gla_operator(), gated), 1e-6);
}

// A decay of 1 - 2^-5 in the first head forgets in 32 steps, that of the eleventh remembers 32768.
TEST(RetentionTest, LongSequences) {
  const Operator& retention = find_operator("retention");
  const Problem problem =
      make_problem(retention, {.sizes = {{"B", 1}, {"H", 11}, {"L", 5000}, {"Dk", 4}, {"Dv", 4}}, .seed = 8});
  expect_stages_match(retention, problem, {}, 2);
}

// The reference against that of gla, and the stage against the reference, without states and with them.
TEST(RetentionTest, Gradients) {
  const Operator& gradients = find_operator("retention", "backward");
  Problem problem =
      make_problem(gradients, {.sizes = {{"B", B}, {"H", H}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}}, .seed = 9});
  const auto expect_right = [&] {
    expect_stages_match(gradients, problem, {}, 1);
    Outputs expected = evaluate_reference(find_operator("gla", "backward"), with_gates(problem));
    expected.erase("dg");
    expect_close(evaluate_reference(gradients, problem), expected, 1e-6);
  };
  expect_right();
  for (const char* name : {"initial_state", "dfinal_state"}) {
    Tensor state(Dtype::fp32, {B, H, Dk, Dv});
    normal()(Random(9, name), problem.sizes, state);
    problem.inputs.insert_or_assign(name, std::move(state));
  }
  expect_right();
}

}  // namespace
}  // namespace tutorial
