/// @file
/// The adjoint is that of the operator: finite differences of <dy, y>, which is linear in x and y_0 and smooth in g.

#include <cmath>

#include "06_scan/scan.hpp"
#include "06_scan/test/stages.hpp"

namespace tutorial {
namespace {

/// <dy, y(inputs)>, of y in double but for its last rounding.
double loss(const Problem& problem) {
  const Operator& forward = scan_operator();
  Problem without_dy;
  without_dy.sizes = problem.sizes;
  for (const char* name : {"x", "log_decay", "initial_state"}) {
    without_dy.inputs.insert_or_assign(name, problem.inputs.at(name).to(Dtype::fp32));
  }
  const Outputs outputs = evaluate_reference(forward, without_dy);
  const auto y = outputs.at("y").elements<float>(), dy = problem.inputs.at("dy").elements<float>();
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += double(y[i]) * double(dy[i]);
  return sum;
}

TEST(BackwardTest, IsTheGradient) {
  const Operator& definition = scan_operator("backward");
  for (const std::int64_t Dg : {1, 3}) {
    Problem problem = drawn(1, 2, 12, 3, Dg, definition);
    const Outputs gradients = evaluate_reference(definition, problem);
    for (const char* name : {"x", "log_decay", "initial_state"}) {
      const auto gradient = gradients.at(std::string("d") + name).elements<float>();
      const auto input = problem.inputs.at(name).elements<float>();
      ASSERT_EQ(gradient.size(), input.size());
      for (std::size_t i = 0; i < input.size(); ++i) {
        constexpr float kStep = 1.0f / 64;
        const float before = input[i];
        input[i] = before + kStep;
        const double above = loss(problem), upper = double(input[i]);
        input[i] = before - kStep;
        const double below = loss(problem), lower = double(input[i]);
        input[i] = before;
        // The third derivative over the gate leaves a part of 4e-5; y is rounded to fp32.
        EXPECT_NEAR((above - below) / (upper - lower), double(gradient[i]), 1e-3 * (1 + std::abs(double(gradient[i]))))
            << name << " " << i;
      }
    }
  }
}

// <dy, A x> = <A^T dy, x> for the linear map A from x and y_0 to y, in fp32 on the GPU's stages, over many tiles.
TEST(BackwardTest, IsTheAdjoint) {
  const Operator& definition = scan_operator("backward");
  for (const auto& [L, D] : {std::pair<std::int64_t, std::int64_t>{9000, 1}, {5000, 3}, {1000, 36}}) {
    const Problem problem = drawn(1, 2, L, D, D, definition);
    const auto product = [](const Tensor& a, const Tensor& b) {
      double sum = 0;
      for (std::int64_t i = 0; i < a.size(); ++i) sum += a.value(i) * b.value(i);
      return sum;
    };
    const auto size = [&](const Tensor& a) { return std::sqrt(product(a, a)); };
    for (const Stage& stage : definition.stages()) {
      SCOPED_TRACE(stage.name);
      const Outputs gradients = evaluate(definition, stage, problem);
      const Tensor &dx = gradients.at("dx"), &x = problem.inputs.at("x");
      const double right = product(dx, x) + product(gradients.at("dinitial_state"), problem.inputs.at("initial_state"));
      EXPECT_NEAR(loss(problem), right, 1e-5 * size(dx) * size(x));
    }
  }
}

}  // namespace
}  // namespace tutorial
