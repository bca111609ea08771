/// @file
/// Gradients where keys are alike (chunk/alike_keys.cuh): with one key repeated, or nearly, the stages that keep 16 bits of
/// the factors that cancel are as right as with any other keys.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "05_deltanet_wy/test/stages.hpp"
#include "common/random.hpp"

namespace tutorial {
namespace {

/// A problem whose keys have length 1 and this cosine with each other, on average.
/// @param period with a cosine of 1: that many keys in turn, at right angles
Problem alike(const Operator& definition, double cosine, float beta, std::int64_t L, int period = 1,
              std::int64_t width = 64) {
  ProblemRequest request{.sizes = {{"B", 1}, {"H", 1}, {"L", L}, {"Dk", width}, {"Dv", width}},
                         .seed = std::uint64_t(L + std::lround(1000 * cosine))};
  Problem problem = make_problem(definition, request);
  Tensor& k = problem.inputs.at("k");
  const auto elements = k.elements<float>();
  const auto unit = [&](const char* name, std::uint64_t row) {
    std::vector<double> x(static_cast<std::size_t>(width));
    double squares = 0;
    for (std::size_t d = 0; d < x.size(); ++d) {
      x[d] = Random(problem.seed, name).normal(row * x.size() + d);
      squares += x[d] * x[d];
    }
    for (double& element : x) element /= std::sqrt(squares);
    return x;
  };
  for (std::uint64_t t = 0; t < std::uint64_t(L); ++t) {
    const std::vector<double> common = unit("common", t % std::uint64_t(period)), own = unit("own", t);
    for (std::size_t d = 0; d < common.size(); ++d) {
      elements[t * common.size() + d] = float(std::sqrt(cosine) * common[d] + std::sqrt(1 - cosine) * own[d]);
    }
  }
  round_to_bf16(k);
  fill(problem.inputs.at("beta"), beta);
  return problem;
}

/// The largest error of a stage's outputs.
double largest_error(const Operator& definition, const Stage& stage, const Problem& problem, const Outputs& truth) {
  double worst = 0;
  for (const auto& [name, out] : evaluate(definition, stage, problem)) {
    const double error = compare(name, out, truth).error;
    EXPECT_TRUE(std::isfinite(error)) << name;
    worst = std::max(worst, error);
  }
  return worst;
}

class AlikeGradientsTest : public testing::TestWithParam<double> {};

void expect_one_percent(const Operator& definition, double cosine, float gate) {
  for (const auto& [beta, L] : {std::pair(1.0f, 64), {1.0f, 130}, {0.9f, 65}, {0.5f, 17}, {0.5f, 512}}) {
    SCOPED_TRACE("beta " + std::to_string(beta) + ", L " + std::to_string(L));
    Problem problem = alike(definition, cosine, beta, L);
    if (const auto g = problem.inputs.find("g"); g != problem.inputs.end()) fill(g->second, gate);
    const Outputs truth = evaluate_reference(definition, problem, Dtype::bf16);
    for (const Stage& stage : definition.stages()) {
      if (!is_bf16(stage) || !why_not(definition, stage, problem).empty()) continue;
      EXPECT_LE(largest_error(definition, stage, problem, truth), 1e-2) << stage.name;
    }
  }
}

TEST_P(AlikeGradientsTest, OfDeltaRule) {
  expect_one_percent(find_operator("delta_rule", "backward"), GetParam(), 0);
}
TEST_P(AlikeGradientsTest, OfGatedDeltaRule) {
  for (const float gate : {0.0f, -0.01f}) {
    SCOPED_TRACE(gate);
    expect_one_percent(find_operator("gated_delta_rule", "backward"), GetParam(), gate);
  }
}

INSTANTIATE_TEST_SUITE_P(Cosines, AlikeGradientsTest, testing::Values(1, 0.99, 0.9),
                         [](const auto& info) { return "Cosine" + std::to_string(std::lround(100 * info.param)); });

}  // namespace
}  // namespace tutorial
