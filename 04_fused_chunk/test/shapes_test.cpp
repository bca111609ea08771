/// @file
/// Every stage over odd shapes and memory layouts, against the double reference.

#include "04_fused_chunk/test/stages.hpp"

namespace tutorial {
namespace {

/// Both operators on problems of the same sizes. @return the stages that took it
int expect_match(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv,
                 const Layout& layout = {}) {
  SCOPED_TRACE("B " + std::to_string(B) + ", H " + std::to_string(H) + ", L " + std::to_string(L) + ", Dk " +
               std::to_string(Dk) + ", Dv " + std::to_string(Dv));
  int ran = 0;
  for (const char* name : {"gla", "simple_gla"}) {
    const Operator& definition = find_operator(name);
    ran += expect_stages_match(definition, drawn(definition, B, H, L, Dk, Dv), layout);
  }
  return ran;
}

/// The same where every stage has to take it: see all_stages().
void expect_all_match(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv,
                      const Layout& layout = {}) {
  EXPECT_EQ(expect_match(B, H, L, Dk, Dv, layout),
            all_stages(find_operator("gla"), Dk) + all_stages(find_operator("simple_gla"), Dk));
}

// Few threads, odd everything: for ThreadSanitizer, too.
TEST(ShapesTest, Small) {
  expect_all_match(1, 2, 35, 80, 16);
}

class LengthsTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(LengthsTest, AreAllRight) {
  const std::int64_t H = GetParam() < 1000 ? 2 : 1;  // the others have several heads
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{32, 16}, {80, 144}}) {
    expect_all_match(1, H, GetParam(), Dk, Dv);
  }
}

INSTANTIATE_TEST_SUITE_P(AroundAChunk, LengthsTest,
                         testing::Values(1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 200));
INSTANTIATE_TEST_SUITE_P(AThousand, LengthsTest, testing::Values(1000));

TEST(ShapesTest, Widths) {
  for (const std::int64_t Dk : {16, 64, 80, 128, 144, 256}) {
    for (const std::int64_t Dv : {16, 48, 64, 112, 128, 208}) expect_all_match(1, 1, 83, Dk, Dv);
  }
}

TEST(ShapesTest, WideHeads) {
  expect_all_match(1, 1, 100, 256, 512);
}

// Widths that no fragment divides, and those that are too wide: the other stages take them.
TEST(ShapesTest, OtherWidths) {
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{5, 3}, {64, 65}, {24, 64}, {272, 16}, {16, 528}}) {
    EXPECT_EQ(expect_match(1, 2, 70, Dk, Dv), 2 + 3);
  }
}

// Of simple_gla's chunkwise: one position, chunks that do not divide L, one chunk, and a chunk longer than L.
TEST(ShapesTest, ChunkLengths) {
  const Operator& definition = find_operator("simple_gla");
  const Stage& stage = find_stage(definition, "chunkwise");
  for (const std::int64_t C : {1, 2, 7, 16, 64, 99, 100, 101, 1000000}) {
    SCOPED_TRACE(C);
    const Problem problem = drawn(definition, 2, 3, 100, 24, 20, C);
    expect_close(evaluate(definition, stage, problem), evaluate_reference(definition, problem),
                 tolerance_of(stage, problem.sizes));
  }
}

TEST(ShapesTest, ManyHeads) {
  expect_all_match(7, 10, 18, 16, 16);
  expect_all_match(70, 1, 2, 64, 64);
}

// Heads inside positions, as PyTorch's [B, L, H, D]; padding that leaves rows aligned to 16 bytes, and that does not.
TEST(ShapesTest, Strides) {
  for (const bool heads_inside : {false, true}) {
    for (const std::int64_t padding : {0, 8}) {
      expect_all_match(2, 3, 67, 80, 96, {.heads_inside = heads_inside, .row_padding = padding});
    }
    EXPECT_EQ(expect_match(2, 3, 67, 80, 96, {.heads_inside = heads_inside, .row_padding = 3}), 2 + 3);
  }
}

}  // namespace
}  // namespace tutorial
