/// @file
/// Every stage over odd shapes and memory layouts, against the double reference.

#include <algorithm>
#include <cmath>

#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/test/stages.hpp"

namespace tutorial {
namespace {

Problem problem_of(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv,
                   std::int64_t C = 64) {
  return make_problem(linear_attention_operator(),
                      {.sizes = {{"B", B}, {"H", H}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}, {"C", C}}, .seed = 1});
}

std::string widths(std::int64_t Dk, std::int64_t Dv) {
  return "Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv);
}

// Few threads, odd everything: for ThreadSanitizer, too.
TEST(ShapesTest, Small) {
  expect_stages_match(problem_of(1, 2, 66, 5, 3));
  expect_stages_match(problem_of(2, 1, 9, 33, 2), {.heads_inside = true, .row_padding = 1});
  expect_stages_match(problem_of(1, 1, 65, 16, 32));
}

class LengthsTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(LengthsTest, AreAllRight) {
  const std::int64_t H = GetParam() < 1000 ? 2 : 1;  // the others have several heads
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{40, 3}, {65, 64}, {64, 80}, {128, 128}}) {
    SCOPED_TRACE(widths(Dk, Dv));
    expect_stages_match(problem_of(1, H, GetParam(), Dk, Dv));
  }
}

INSTANTIATE_TEST_SUITE_P(AroundAChunk, LengthsTest, testing::Values(1, 2, 63, 64, 65, 130));
INSTANTIATE_TEST_SUITE_P(AThousand, LengthsTest, testing::Values(1000));

TEST(ShapesTest, Widths) {
  for (const std::int64_t Dk : {1, 15, 16, 48, 65, 144, 256}) {
    for (const std::int64_t Dv : {1, 31, 33, 64, 96, 130, 256}) {
      SCOPED_TRACE(widths(Dk, Dv));
      expect_stages_match(problem_of(1, 1, 70, Dk, Dv));
    }
  }
}

// The widest that all stages take, in multiples of 16.
TEST(ShapesTest, WideHeads) {
  expect_stages_match(problem_of(1, 1, 100, 256, 512));
  expect_stages_match(problem_of(1, 1, 100, 16, 512));
  expect_stages_match(problem_of(1, 2, 100, 256, 16));
  expect_stages_match(problem_of(1, 1, 70, 384, 40), {}, 3);
  expect_stages_match(problem_of(1, 1, 70, 385, 40), {}, 3);
}

// What the tensor cores do not support, dispatch computes in fp32: any width in any layout.
TEST(ShapesTest, DispatchTakesAnyWidthAndLayout) {
  const Stage& stage = find_stage("dispatch");
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{40, 65}, {7, 1}, {300, 33}}) {
    SCOPED_TRACE(widths(Dk, Dv));
    const Problem problem = problem_of(2, 2, 67, Dk, Dv);
    expect_close(evaluate(linear_attention_operator(), stage, problem, {.heads_inside = true, .row_padding = 3}),
                 evaluate_reference(linear_attention_operator(), problem, Dtype::bf16),
                 tolerance_of(stage, problem.sizes));
  }
}

// Of stage 3: one position, chunks that do not divide L, one chunk, and a chunk longer than L.
TEST(ShapesTest, ChunkLengths) {
  for (const std::int64_t C : {1, 2, 7, 64, 99, 100, 101, 1000000}) {
    const Problem problem = problem_of(2, 3, 100, 24, 20, C);
    const Stage& stage = find_stage("chunkwise");
    SCOPED_TRACE(C);
    expect_close(evaluate(linear_attention_operator(), stage, problem),
                 evaluate_reference(linear_attention_operator(), problem), tolerance_of(stage, problem.sizes));
  }
}

TEST(ShapesTest, ManyHeads) {
  expect_stages_match(problem_of(7, 10, 66, 16, 16));
  expect_stages_match(problem_of(70, 1, 2, 64, 64));
  expect_stages_match(problem_of(1, 70, 65, 3, 1));
}

TEST(ShapesTest, Strides) {
  for (const Layout& layout : kOddLayouts) {
    for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{64, 64}, {40, 65}, {144, 32}}) {
      SCOPED_TRACE(name_of(layout) + ", " + widths(Dk, Dv));
      expect_stages_match(problem_of(2, 3, 67, Dk, Dv), layout);
    }
  }
}

// Above L = 4096 the reference is the recurrence: is it the same operator?
TEST(ShapesTest, TheTwoReferencesAgree) {
  const Problem problem = problem_of(1, 2, 4096, 8, 8);
  Problem longer = problem_of(1, 2, 4097, 8, 8);
  const Outputs quadratic = evaluate_reference(linear_attention_operator(), problem);
  for (const char* name : {"q", "k", "v"}) {  // the same positions, and one more
    for (int h = 0; h < 2; ++h) {
      const auto from = problem.inputs.at(name).elements<float>().subspan(std::size_t(h) * 4096 * 8, 4096 * 8);
      std::copy(from.begin(), from.end(), longer.inputs.at(name).elements<float>().subspan(h * 4097 * 8).begin());
    }
  }
  longer.inputs.at("initial_state") = problem.inputs.at("initial_state").to(Dtype::fp32);
  const Outputs recurrent = evaluate_reference(linear_attention_operator(), longer);
  for (int h = 0; h < 2; ++h) {
    for (int i = 0; i < 4096 * 8; ++i) {
      const double value = quadratic.at("o").value(h * 4096 * 8 + i);
      ASSERT_NEAR(recurrent.at("o").value(h * 4097 * 8 + i), value, 1e-6 * std::abs(value)) << i;
    }
  }
}

}  // namespace
}  // namespace tutorial
