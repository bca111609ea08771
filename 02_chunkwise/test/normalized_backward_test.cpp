/// @file
/// The gradients of the normalised operator, `--backward --normalize`.

#include "02_chunkwise/test/stages.hpp"
#include "common/test/gradients.hpp"

namespace tutorial {
namespace {

const Operator& normalized_backward_operator() {
  return find_operator("linear_attention", "backward+normalize");
}

/// With gradients of the final states.
Problem problem_of(std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv) {
  Problem problem = make_problem(normalized_backward_operator(),
                                 {.sizes = {{"B", 2}, {"H", H}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}}, .seed = 9});
  const auto add = [&](const char* name, const Shape& shape) {
    Tensor gradient(Dtype::fp32, shape);
    normal()(Random(problem.seed, name), problem.sizes, gradient);
    problem.inputs.insert_or_assign(name, std::move(gradient));
  };
  add("dfinal_state", {2, H, Dk, Dv});
  add("dfinal_z", {2, H, Dk});
  return problem;
}

void expect_match(const Problem& problem, const Layout& layout = {}) {
  EXPECT_EQ(expect_supporting_stages_match(normalized_backward_operator(), problem, layout), 2);
}

/// The operator as its definition says.
Doubles forward(const Doubles& inputs, const Problem& problem) {
  const auto size = [&](const char* symbol) { return std::size_t(problem.sizes.at(symbol)); };
  const std::size_t heads = size("B") * size("H"), L = size("L"), Dk = size("Dk"), Dv = size("Dv");
  Doubles outputs;
  auto &o = outputs["o"], &S = outputs["final_state"], &z = outputs["final_z"];
  S = inputs.at("initial_state");
  z = inputs.at("initial_z");
  o.resize(heads * L * Dv);
  for (std::size_t row = 0; row < heads * L; ++row) {
    double* state = &S[row / L * Dk * Dv];
    double denominator = double(1e-6f);
    for (std::size_t d = 0; d < Dk; ++d) {
      const double k = inputs.at("k")[row * Dk + d], q = problem.scale * inputs.at("q")[row * Dk + d];
      z[row / L * Dk + d] += k;
      denominator += q * z[row / L * Dk + d];
      for (std::size_t j = 0; j < Dv; ++j) {
        state[d * Dv + j] += k * inputs.at("v")[row * Dv + j];
        o[row * Dv + j] += q * state[d * Dv + j];
      }
    }
    for (std::size_t j = 0; j < Dv; ++j) o[row * Dv + j] /= denominator;
  }
  return outputs;
}

TEST(NormalizedBackwardTest, TheReferenceIsTheGradient) {
  const Problem problem = problem_of(2, 13, 5, 3);
  expect_gradients(normalized_backward_operator(), problem,
                   [&](const Doubles& inputs) { return forward(inputs, problem); });
}

TEST(NormalizedBackwardTest, Small) {
  expect_match(problem_of(1, 66, 16, 32));
}

TEST(NormalizedBackwardTest, Lengths) {
  for (const std::int64_t L : {1, 2, 63, 64, 65, 200}) {
    for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{64, 64}, {128, 128}}) {
      SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
      expect_match(problem_of(1, L, Dk, Dv));
    }
  }
}

TEST(NormalizedBackwardTest, WidthsAndRows) {
  expect_match(problem_of(1, 67, 256, 96));
  expect_match(problem_of(1, 67, 40, 65));
  expect_match(problem_of(1, 67, 300, 16));
  expect_match(problem_of(1, 67, 256, 512));
  expect_match(problem_of(2, 67, 64, 64), {.heads_inside = true, .row_padding = 3});
}

TEST(NormalizedBackwardTest, NoStates) {
  Problem problem = problem_of(2, 130, 32, 48);
  for (const char* name : {"initial_state", "initial_z", "dfinal_state", "dfinal_z"}) problem.inputs.erase(name);
  expect_match(problem);
}

}  // namespace
}  // namespace tutorial
