/// @file
/// The operator `short_convolution`: both directions over odd shapes and widths, in two calls, and what is refused.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "06_scan/test/stages.hpp"
#include "common/test/gradients.hpp"

namespace tutorial {
namespace {

Problem drawn_problem(const char* form, std::int64_t B, std::int64_t L, std::int64_t D, std::int64_t W) {
  const Operator& definition = find_operator("short_convolution", form);
  Problem problem = make_problem(definition, {.sizes = {{"B", B}, {"L", L}, {"D", D}, {"W", W}}, .seed = 5});
  if (std::string(form) == "backward") {
    Tensor gradient(Dtype::fp32, {B, W, D});
    normal()(Random(6, "dfinal_state"), problem.sizes, gradient);
    problem.inputs.insert_or_assign("dfinal_state", std::move(gradient));
  }
  return problem;
}

/// Rows that begin anywhere, and rows of whole groups; runs that end within eight positions, and shorter sequences than
/// the kernel is wide.
TEST(ShortConvolutionTest, Shapes) {
  for (const char* form : {"", "backward"}) {
    for (const auto& [B, L, D, W] : {std::array<std::int64_t, 4>{2, 70, 68, 4},
                                     {1, 1, 1, 4},
                                     {3, 2, 7, 3},
                                     {1, 33, 300, 1},
                                     {2, 300, 6, 8},
                                     {1, 31, 257, 5},
                                     {2, 513, 4, 2}}) {
      SCOPED_TRACE(std::string(form) + " " + std::to_string(L) + " x " + std::to_string(D) + ", " + std::to_string(W));
      EXPECT_EQ(
          expect_supporting_stages_match(find_operator("short_convolution", form), drawn_problem(form, B, L, D, W)), 2);
    }
  }
}

/// The formula of the header, in double.
TEST(ShortConvolutionTest, GradientsAreThoseOfTheFormula) {
  constexpr std::int64_t B = 2, L = 6, D = 3, W = 4;
  expect_gradients(find_operator("short_convolution", "backward"), drawn_problem("backward", B, L, D, W),
                   [&](const Doubles& inputs) {
                     const auto &u = inputs.at("u"), &kernel = inputs.at("kernel"), &state = inputs.at("initial_state");
                     const auto input = [&](std::int64_t b, std::int64_t t, std::int64_t d) {
                       return t >= 0 ? u[std::size_t((b * L + t) * D + d)]
                                     : state[std::size_t((b * W + W + t) * D + d)];
                     };
                     Doubles outputs{{"y", {}}, {"final_state", {}}};
                     for (std::int64_t b = 0; b < B; ++b) {
                       for (std::int64_t t = 0; t < L; ++t) {
                         for (std::int64_t d = 0; d < D; ++d) {
                           double y = 0;
                           for (std::int64_t j = 0; j < W; ++j) {
                             y += kernel[std::size_t(d * W + j)] * input(b, t - W + 1 + j, d);
                           }
                           outputs["y"].push_back(y);
                         }
                       }
                       for (std::int64_t i = 0; i < W; ++i) {
                         for (std::int64_t d = 0; d < D; ++d) outputs["final_state"].push_back(input(b, L - W + i, d));
                       }
                     }
                     return outputs;
                   });
}

/// The final state of one call is the initial state of the next.
TEST(ShortConvolutionTest, TwoCallsAreOne) {
  constexpr std::int64_t L = 45, D = 34, W = 4;
  const Operator& definition = find_operator("short_convolution");
  const Problem whole = drawn_problem("", 1, L, D, W);
  for (const std::int64_t border : {2, 32, 44}) {
    const auto part = [&](std::int64_t begin, std::int64_t end, const Tensor& state) {
      Problem problem = drawn_problem("", 1, end - begin, D, W);
      const auto from = whole.inputs.at("u").elements<float>().subspan(std::size_t(begin * D));
      std::copy_n(from.begin(), (end - begin) * D, problem.inputs.at("u").elements<float>().begin());
      problem.inputs.insert_or_assign("kernel", whole.inputs.at("kernel").to(Dtype::fp32));
      problem.inputs.insert_or_assign("initial_state", state.to(Dtype::fp32));
      return problem;
    };
    for (const Stage& stage : definition.stages()) {
      SCOPED_TRACE(stage.name + " " + std::to_string(border));
      const Outputs all = evaluate(definition, stage, whole);
      const Outputs first = evaluate(definition, stage, part(0, border, whole.inputs.at("initial_state")));
      const Outputs second = evaluate(definition, stage, part(border, L, first.at("final_state")));
      const auto y = all.at("y").elements<float>();
      EXPECT_TRUE(std::ranges::equal(y.first(std::size_t(border * D)), first.at("y").elements<float>()));
      EXPECT_TRUE(std::ranges::equal(y.subspan(std::size_t(border * D)), second.at("y").elements<float>()));
      EXPECT_TRUE(
          std::ranges::equal(all.at("final_state").elements<float>(), second.at("final_state").elements<float>()));
    }
  }
}

/// What is not finite reaches no further than W positions, in both directions.
TEST(ShortConvolutionTest, NotFiniteStaysInTheWindow) {
  constexpr std::int64_t L = 24, at = 9, W = 3;
  const auto expect_finite = [&](const char* form, const char* input, const char* output, std::int64_t first) {
    const Operator& definition = find_operator("short_convolution", form);
    Problem problem = drawn_problem(form, 1, L, 1, W);
    problem.inputs.at(input).elements<float>()[at] = std::numeric_limits<float>::infinity();
    for (const Stage& stage : definition.stages()) {
      const Outputs outputs = evaluate(definition, stage, problem);
      const auto result = outputs.at(output).elements<float>();
      for (std::int64_t t = 0; t < L; ++t) {
        EXPECT_EQ(std::isfinite(result[std::size_t(t)]), t < first || t >= first + W) << stage.name << " " << t;
      }
    }
  };
  expect_finite("", "u", "y", at);
  expect_finite("backward", "dy", "du", at - W + 1);
}

TEST(ShortConvolutionTest, Refuses) {
  for (const char* form : {"", "backward"}) {
    const Operator& definition = find_operator("short_convolution", form);
    for (const Stage& stage : definition.stages()) {
      EXPECT_NE(why_not(definition, stage, drawn_problem(form, 1, 5, 4, 9)).find("W > 8"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace tutorial
