/// @file
/// Every stage over odd shapes and memory layouts, against the double reference.

#include "03_gla/test/stages.hpp"

namespace tutorial {
namespace {

Problem retention_problem(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv) {
  return make_problem(find_operator("retention"),
                      {.sizes = {{"B", B}, {"H", H}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}}, .seed = 4});
}

/// Both operators on problems of the same sizes.
void expect_match(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv,
                  const Layout& layout = {}) {
  SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
  expect_stages_match(gla_operator(), gla_problem(B, H, L, Dk, Dv), layout);
  expect_stages_match(find_operator("retention"), retention_problem(B, H, L, Dk, Dv), layout, 2);
}

// Few threads, odd everything: for ThreadSanitizer, too.
TEST(ShapesTest, Small) {
  expect_match(1, 2, 66, 5, 3);
  expect_match(2, 1, 9, 33, 2, {.heads_inside = true, .row_padding = 1});
}

class LengthsTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(LengthsTest, AreAllRight) {
  const std::int64_t H = GetParam() < 1000 ? 2 : 1;  // the others have several heads
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{40, 3}, {65, 64}, {128, 80}}) {
    expect_match(1, H, GetParam(), Dk, Dv);
  }
}

INSTANTIATE_TEST_SUITE_P(AroundAChunk, LengthsTest, testing::Values(1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 130));
INSTANTIATE_TEST_SUITE_P(AThousand, LengthsTest, testing::Values(1000));

TEST(ShapesTest, Widths) {
  for (const std::int64_t Dk : {1, 16, 31, 64, 65, 144, 256}) {
    for (const std::int64_t Dv : {1, 31, 33, 64, 130}) expect_match(1, 1, 70, Dk, Dv);
  }
}

// Those of a layer of 2048; and a key too wide for recurrent_gpu.
TEST(ShapesTest, WideHeads) {
  expect_match(1, 1, 100, 256, 512);
  expect_match(1, 1, 70, 257, 40);
}

// Of `chunkwise`: one position, chunks that do not divide L, one chunk, and a chunk longer than L.
TEST(ShapesTest, ChunkLengths) {
  const Stage& stage = find_stage(gla_operator(), "chunkwise");
  for (const std::int64_t C : {1, 2, 7, 16, 17, 64, 99, 100, 101, 1000000}) {
    SCOPED_TRACE(C);
    const Problem problem = gla_problem(2, 3, 100, 24, 20, C);
    expect_close(evaluate(gla_operator(), stage, problem), evaluate_reference(gla_operator(), problem),
                 tolerance_of(stage, problem.sizes));
  }
}

TEST(ShapesTest, ManyHeads) {
  expect_match(7, 10, 66, 16, 16);
  expect_match(70, 1, 2, 64, 64);
  expect_match(1, 70, 65, 3, 1);
}

TEST(ShapesTest, Strides) {
  for (const Layout& layout : kOddLayouts) {
    SCOPED_TRACE(name_of(layout));
    for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{64, 64}, {40, 65}}) {
      expect_match(2, 3, 67, Dk, Dv, layout);
    }
  }
}

}  // namespace
}  // namespace tutorial
