/// @file
/// Every stage over odd shapes, chunk lengths and memory layouts, against the double reference.

#include "05_deltanet_wy/test/stages.hpp"

namespace tutorial {
namespace {

void expect_match(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv, std::int64_t C = 64,
                  const Layout& layout = {}) {
  SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv) + ", C " +
               std::to_string(C));
  expect_stages_match(drawn(B, H, L, Dk, Dv, C), layout);
}

// Few threads, odd everything: for ThreadSanitizer, too.
TEST(ShapesTest, Small) {
  expect_match(1, 1, 66, 5, 3);
  expect_match(2, 1, 9, 33, 2, 4, {.heads_inside = true, .row_padding = 1});
}

class LengthsTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(LengthsTest, AreAllRight) {
  const std::int64_t L = GetParam();
  const std::int64_t H = L < 1000 ? 2 : 1;  // the others have several heads
  constexpr std::pair<std::int64_t, std::int64_t> kWidths[] = {{40, 3}, {65, 64}, {128, 80}};
  for (const auto& [Dk, Dv] : kWidths) expect_match(1, H, L, Dk, Dv, 64);
  // Shorter chunks at widths that change with L: what depends on the one does not depend on the other.
  for (const auto& [C, i] : {std::pair<std::int64_t, std::int64_t>{16, L}, {32, L + 1}}) {
    expect_match(1, H, L, kWidths[i % 3].first, kWidths[i % 3].second, C);
  }
}

INSTANTIATE_TEST_SUITE_P(AroundAChunk, LengthsTest, testing::Values(1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 130));
INSTANTIATE_TEST_SUITE_P(AThousand, LengthsTest, testing::Values(1000));

TEST(ShapesTest, Widths) {
  for (const std::int64_t Dk : {1, 16, 31, 64, 65, 144, 256}) {
    for (const std::int64_t Dv : {1, 31, 33, 64, 130}) expect_match(1, 1, 70, Dk, Dv);
  }
}

// Widths of the tensor cores: parts of a tile of 64, and several tiles. Dk chooses the kernel, and Dv how many blocks it
// has and how wide the last one is, so each of them meets some of the others.
TEST(ShapesTest, MultiplesOf16) {
  constexpr std::int64_t kDv[] = {16, 80, 128, 208, 512};
  int i = 0;
  for (const std::int64_t Dk : {16, 48, 80, 128, 192, 256}) {
    expect_match(1, 2, 70, Dk, kDv[i % 5]);
    expect_match(1, 2, 70, Dk, kDv[(i + 2) % 5]);
    ++i;
  }
}

// As wide as the tensor cores take them; and a key for which only dispatch has room on a GPU.
TEST(ShapesTest, WideHeads) {
  expect_match(1, 1, 100, 256, 512);
  expect_match(1, 1, 70, 257, 40);
  expect_match(2, 1, 3, 1024, 9);
}

// One position, chunks that do not divide L, one chunk, and a chunk longer than L. (Of the GPU's up to 64.)
TEST(ShapesTest, ChunkLengths) {
  for (const std::int64_t C : {1, 2, 7, 16, 17, 32, 63, 64, 99, 100, 101, 1000000}) expect_match(2, 3, 100, 24, 20, C);
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
      expect_match(2, 3, 67, Dk, Dv, 32, layout);
    }
  }
}

}  // namespace
}  // namespace tutorial
