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
double largest_error(const Operator& definition, const char* stage, const Problem& problem) {
  const Outputs truth = evaluate_reference(definition, problem, Dtype::bf16);
  double worst = 0;
  for (const auto& [name, out] : evaluate(definition, find_stage(definition, stage), problem)) {
    const double error = compare(name, out, truth).error;
    EXPECT_TRUE(std::isfinite(error)) << stage << " " << name;
    worst = std::max(worst, error);
  }
  return worst;
}

/// The root of the sum of the squares of the elements.
double size_of_all(const Tensor& x) {
  double squares = 0;
  for (const float element : x.elements<float>()) squares += double(element) * double(element);
  return std::sqrt(squares);
}

/// The lengths and betas of these tests.
constexpr std::pair<float, int> kCases[] = {{1.0f, 64}, {1.0f, 130}, {0.9f, 65}, {0.5f, 17}, {0.5f, 512}};

/// Every stage on tensor cores whose definition says so is right to one percent.
void expect_one_percent(const Operator& definition, const Problem& problem) {
  int ran = 0;
  for (const Stage& stage : definition.stages()) {
    if (stage.most_where_alike != 1 || !why_not(definition, stage, problem).empty()) continue;
    EXPECT_LE(largest_error(definition, stage.name.c_str(), problem), 1e-2) << stage.name;
    ++ran;
  }
  EXPECT_GE(ran, 2);
}

class AlikeGradientsTest : public testing::TestWithParam<double> {};

TEST_P(AlikeGradientsTest, OfDeltaRule) {
  const Operator& definition = find_operator("delta_rule", "backward");
  for (const auto& [beta, L] : kCases) {
    SCOPED_TRACE("beta " + std::to_string(beta) + ", L " + std::to_string(L));
    expect_one_percent(definition, alike(definition, GetParam(), beta, L));
  }
}

TEST_P(AlikeGradientsTest, OfGatedDeltaRule) {
  const Operator& definition = find_operator("gated_delta_rule", "backward");
  for (const float gate : {0.0f, -0.01f}) {
    for (const auto& [beta, L] : kCases) {
      SCOPED_TRACE("gates " + std::to_string(gate) + ", beta " + std::to_string(beta) + ", L " + std::to_string(L));
      Problem problem = alike(definition, GetParam(), beta, L);
      fill(problem.inputs.at("g"), gate);
      expect_one_percent(definition, problem);
    }
  }
}

// With weak gates the rows that contain their decays are rounded, each by itself. The last gates differ from column to
// column: in a chunk they leave e^-1 of one, and 2^-140 of another, which is more than one anchor can have.
TEST_P(AlikeGradientsTest, OfKda) {
  const Operator& definition = find_operator("kda", "backward");
  for (const char* gates : {"open", "-0.001", "-0.01", "drawn", "two kinds"}) {
    for (const auto& [beta, L] : kCases) {
      SCOPED_TRACE(std::string("gates ") + gates + ", beta " + std::to_string(beta) + ", L " + std::to_string(L));
      Problem problem = alike(definition, GetParam(), beta, L);
      Tensor& g = problem.inputs.at("g");
      if (*gates == 'o') fill(g, 0);
      if (*gates == '-') fill(g, std::stof(gates));
      if (*gates == 't') {
        const auto elements = g.elements<float>();
        for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = i % 8 == 0 ? -1.5f : -1.0f / 64;
      }
      expect_one_percent(definition, problem);
    }
  }
}

// Without states at the ends, and with one key, nothing is left of dg. So its error is relative to the size of its terms: one
// percent in marked chunks, and where gates hide just enough that no chunk is marked, what the stage states.
TEST_P(AlikeGradientsTest, OfGatedDeltaRuleWithoutStates) {
  const Operator& definition = find_operator("gated_delta_rule", "backward");
  for (const float gate : {0.0f, -0.01f, -0.07f}) {
    for (const auto& [beta, L] : kCases) {
      SCOPED_TRACE("gates " + std::to_string(gate) + ", beta " + std::to_string(beta) + ", L " + std::to_string(L));
      Problem problem = alike(definition, GetParam(), beta, L);
      fill(problem.inputs.at("g"), gate);
      for (const char* state : {"initial_state", "dfinal_state"}) problem.inputs.erase(state);
      const Outputs truth = evaluate_reference(definition, problem, Dtype::bf16);
      const double share = size_of_all(truth.at("dg")) / size_of_all(truth.at(terms_of("dg")));
      int ran = 0;
      for (const Stage& stage : definition.stages()) {
        if (stage.most_of_terms == 0 || !why_not(definition, stage, problem).empty()) continue;
        const double most = gate < -0.05f ? stage.most_of_terms : 1;
        const Comparison found = compare("dg", evaluate(definition, stage, problem).at("dg"), truth);
        EXPECT_LE(found.error * share, 1e-2 * most) << stage.name;
        ++ran;
      }
      EXPECT_GE(ran, 2);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cosines, AlikeGradientsTest, testing::Values(1, 0.99, 0.9),
                         [](const auto& info) { return "Cosine" + std::to_string(std::lround(100 * info.param)); });

// Two keys in turn, and as many of a kind as make no difference: up to kMostAlike.
TEST(AlikeGradientsTest, OfSeveralKeysInTurn) {
  const Operator& definition = find_operator("delta_rule", "backward");
  for (const int period : {2, 3, 8}) {
    SCOPED_TRACE(period);
    expect_one_percent(definition, alike(definition, 1, 1, 130, period));
  }
}

// The stages that round these factors once are not: so their limit, and not this one, lets them pass.
TEST(AlikeGradientsTest, OneRoundingIsNotEnough) {
  const Operator& definition = find_operator("delta_rule", "backward");
  for (const int L : {64, 130, 512}) {
    SCOPED_TRACE(L);
    const Problem problem = alike(definition, 1, 1, L);
    for (const char* stage : {"walks", "tensor_core"}) {
      const double error = largest_error(definition, stage, problem);
      EXPECT_GT(error, 1e-2) << stage;
      EXPECT_LT(error, 3e-2) << stage;
    }
  }
}

}  // namespace
}  // namespace tutorial
