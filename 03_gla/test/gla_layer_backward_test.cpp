/// @file
/// The layer's gradients, `gla_layer --backward`.

#include <cmath>

#include "03_gla/test/stages.hpp"
#include "common/test/gradients.hpp"

namespace tutorial::gla_layer {
namespace {

const Operator& backward_operator() {
  return find_operator("gla_layer", "backward");
}

Problem problem_of(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv,
                   std::int64_t d_model, std::int64_t rank) {
  return make_problem(
      backward_operator(),
      {.sizes = {{"B", B}, {"H", H}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}, {"d_model", d_model}, {"rank", rank}},
       .seed = 5});
}

void expect_match(const Problem& problem) {
  EXPECT_GE(expect_supporting_stages_match(backward_operator(), problem), 1);
}

/// x W^T, x [rows, in] and W [out, in].
std::vector<double> project(const std::vector<double>& x, const std::vector<double>& W, std::size_t in) {
  const std::size_t rows = x.size() / in, out = W.size() / in;
  std::vector<double> y(rows * out);
  for (std::size_t t = 0; t < rows; ++t) {
    for (std::size_t i = 0; i < out; ++i) {
      for (std::size_t j = 0; j < in; ++j) y[t * out + i] += x[t * in + j] * W[i * in + j];
    }
  }
  return y;
}

/// The layer as gla_layer.hpp says, one position after the other.
Doubles forward(const Doubles& inputs, const Problem& problem) {
  const auto size = [&](const char* symbol) { return std::size_t(problem.sizes.at(symbol)); };
  const std::size_t B = size("B"), H = size("H"), L = size("L"), Dk = size("Dk"), Dv = size("Dv");
  const std::size_t d_model = size("d_model");
  const auto projection = [&](const char* W) { return project(inputs.at("x"), inputs.at(W), d_model); };
  const auto q = projection("q_proj.weight"), k = projection("k_proj.weight"), v = projection("v_proj.weight");
  const auto z = projection("g_proj.weight");
  const auto logits = project(projection("gk_proj.0.weight"), inputs.at("gk_proj.1.weight"), size("rank"));
  const auto &bias = inputs.at("gk_proj.1.bias"), &w = inputs.at("g_norm_swish_gate.weight");
  std::vector<double> u(B * L * H * Dv), S(H * Dk * Dv), o(Dv);
  for (std::size_t t = 0; t < B * L; ++t) {
    if (t % L == 0) S.assign(S.size(), 0);
    for (std::size_t h = 0; h < H; ++h) {
      o.assign(Dv, 0);
      for (std::size_t d = 0; d < Dk; ++d) {
        const std::size_t key = (t * H + h) * Dk + d;
        const double logit = logits[key] + bias[h * Dk + d];
        const double gate = std::pow(1 / (1 + std::exp(-logit)), 1.0 / 16);
        for (std::size_t j = 0; j < Dv; ++j) {
          double& x = S[(h * Dk + d) * Dv + j];
          x = gate * x + k[key] * v[(t * H + h) * Dv + j];
          o[j] += problem.scale * q[key] * x;
        }
      }
      double squares = 0;
      for (const double x : o) squares += x * x;
      for (std::size_t j = 0; j < Dv; ++j) {
        const std::size_t value = (t * H + h) * Dv + j;
        u[value] = o[j] / std::sqrt(squares / double(Dv) + double(1e-5f)) * w[j] * z[value] / (1 + std::exp(-z[value]));
      }
    }
  }
  Doubles outputs;
  outputs["y"] = project(u, inputs.at("o_proj.weight"), H * Dv);
  return outputs;
}

TEST(GlaLayerBackwardTest, TheReferenceIsTheGradient) {
  const Problem problem = problem_of(2, 2, 9, 4, 6, 10, 3);
  expect_gradients(backward_operator(), problem, [&](const Doubles& inputs) { return forward(inputs, problem); });
}

TEST(GlaLayerBackwardTest, Small) {
  expect_match(problem_of(1, 2, 5, 3, 2, 6, 2));
}

TEST(GlaLayerBackwardTest, Shapes) {
  for (const std::int64_t L : {1, 2, 17, 65}) {
    SCOPED_TRACE(L);
    expect_match(problem_of(2, 3, L, 8, 16, 40, 16));
  }
  expect_match(problem_of(1, 1, 33, 5, 7, 9, 1));
}

// Logits of any size: gates that are shut or wide open have no gradient, and none is NaN.
TEST(GlaLayerBackwardTest, HardGates) {
  Problem problem = problem_of(1, 2, 20, 4, 4, 8, 2);
  const auto bias = problem.inputs.at("gk_proj.1.bias").elements<float>();
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = i % 2 == 0 ? 1e5f : -1e5f;
  expect_match(problem);
}

}  // namespace
}  // namespace tutorial::gla_layer
