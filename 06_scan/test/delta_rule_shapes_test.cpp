/// @file
/// scan_affine over odd shapes and memory layouts, against the double reference.

#include "06_scan/test/states.hpp"

namespace tutorial {
namespace {

void expect_match(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv,
                  const Layout& layout = {}) {
  expect_scans_match(state_operator("delta_rule"), B, H, L, Dk, Dv, layout);
}

// Few threads, odd everything, a level up and two down: for ThreadSanitizer, too.
TEST(DeltaRuleShapesTest, Small) {
  expect_match(1, 1, 100, 5, 3);
  expect_match(2, 1, 9, 33, 2, {.heads_inside = true, .row_padding = 1});
}

class DeltaRuleLengthsTest : public testing::TestWithParam<std::int64_t> {};

// Leaves of 32 steps: one of them, a few, as many as a tree likes or one more, a last one that is short.
TEST_P(DeltaRuleLengthsTest, AreAllRight) {
  expect_match(1, 2, GetParam(), 16, 8);
  expect_match(1, 1, GetParam(), 65, 3);
}

INSTANTIATE_TEST_SUITE_P(AroundALeaf, DeltaRuleLengthsTest,
                         testing::Values(1, 2, 31, 32, 33, 63, 64, 65, 96, 97, 127, 128, 129, 160, 161, 200, 256, 257,
                                         289, 545));

// Strips and slices of 64, tiles of 32 and 64, up to the widest.
TEST(DeltaRuleShapesTest, Widths) {
  for (const std::int64_t Dk : {1, 4, 31, 64, 65, 128}) {
    for (const std::int64_t Dv : {1, 3, 33, 64, 65}) expect_match(1, 1, 70, Dk, Dv);
  }
}

TEST(DeltaRuleShapesTest, WideHeads) {
  expect_match(1, 1, 133, 129, 130);
  expect_match(1, 1, 100, 256, 256);
  expect_match(1, 1, 70, 200, 7);
}

TEST(DeltaRuleShapesTest, ManyHeads) {
  expect_match(7, 10, 66, 8, 4);
  expect_match(70, 1, 2, 16, 33);
}

// Heads inside positions, as PyTorch's [B, L, H, D]; padding that leaves rows aligned to 16 bytes, and that does not.
TEST(DeltaRuleShapesTest, Strides) {
  for (const bool heads_inside : {false, true}) {
    for (const std::int64_t padding : {0, 3, 4}) {
      expect_match(2, 3, 67, 24, 20, {.heads_inside = heads_inside, .row_padding = padding});
    }
  }
}

}  // namespace
}  // namespace tutorial
