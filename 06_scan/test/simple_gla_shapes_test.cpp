/// @file
/// The scans of simple_gla over odd shapes and memory layouts, against the double reference.

#include "06_scan/test/states.hpp"

namespace tutorial {
namespace {

void expect_match(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv,
                  const Layout& layout = {}) {
  expect_scans_match(state_operator("simple_gla"), B, H, L, Dk, Dv, layout);
}

/// scan_fused alone: scan_states takes a block a position.
void expect_fused_matches(std::int64_t L, std::int64_t Dk, std::int64_t Dv) {
  SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
  const Operator& definition = state_operator("simple_gla");
  const Problem problem = drawn_states(definition, 1, 2, L, Dk, Dv);
  const Stage& stage = find_stage(definition, "scan_fused");
  expect_close(evaluate(definition, stage, problem), evaluate_reference(definition, problem),
               tolerance_of(stage, problem.sizes));
}

// Few threads, odd everything, tiles that look back: for ThreadSanitizer, too.
TEST(SimpleGlaShapesTest, Small) {
  expect_match(1, 1, 3, 5, 3, {.heads_inside = true, .row_padding = 1});
  expect_fused_matches(200, 5, 3);
}

class SimpleGlaLengthsTest : public testing::TestWithParam<std::int64_t> {};

// Tiles of 64 steps, and of 32 where Dk > 128.
TEST_P(SimpleGlaLengthsTest, AreAllRight) {
  expect_match(1, 2, GetParam(), 16, 8);
  expect_match(1, 1, GetParam(), 65, 3);
  expect_fused_matches(GetParam(), 130, 33);
  expect_fused_matches(GetParam(), 128, 64);
}

INSTANTIATE_TEST_SUITE_P(AroundATile, SimpleGlaLengthsTest,
                         testing::Values(1, 2, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 200, 321));

// More tiles than are under way at once.
TEST(SimpleGlaShapesTest, ManyTiles) {
  expect_fused_matches(4000, 8, 5);
  expect_fused_matches(1500, 200, 40);
}

TEST(SimpleGlaShapesTest, Widths) {
  for (const std::int64_t Dk : {1, 4, 63, 64, 65, 128, 129, 256}) {
    for (const std::int64_t Dv : {1, 3, 31, 32, 33, 64, 130}) expect_fused_matches(70, Dk, Dv);
  }
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 130}, {130, 5}, {64, 64}, {256, 128}}) {
    expect_match(1, 1, 40, Dk, Dv);
  }
}

TEST(SimpleGlaShapesTest, ManyHeads) {
  expect_match(7, 10, 5, 16, 16);
  expect_match(70, 1, 2, 8, 33);
}

// Heads inside positions, as PyTorch's [B, L, H, D]; padding that leaves rows aligned to 16 bytes, and that does not.
TEST(SimpleGlaShapesTest, Strides) {
  for (const bool heads_inside : {false, true}) {
    for (const std::int64_t padding : {0, 3, 4}) {
      expect_match(2, 3, 67, 24, 20, {.heads_inside = heads_inside, .row_padding = padding});
    }
  }
}

}  // namespace
}  // namespace tutorial
