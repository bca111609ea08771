/// @file
/// Every stage over odd shapes and memory layouts, forwards and backwards, against the double reference.

#include "06_scan/test/stages.hpp"

namespace tutorial {
namespace {

void expect_match(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t D, std::int64_t Dg,
                  const Layout& layout = {}) {
  for (const char* form : {"", "backward"}) {
    SCOPED_TRACE("scan --" + std::string(form) + " L " + std::to_string(L) + ", D " + std::to_string(D) + ", Dg " +
                 std::to_string(Dg));
    const Operator& definition = scan_operator(form);
    expect_stages_match(drawn(B, H, L, D, Dg, definition), layout, definition);
  }
}

// Few threads, odd everything, two tiles: for ThreadSanitizer, too.
TEST(ShapesTest, Small) {
  expect_match(1, 1, 260, 3, 3);
  for (const auto& [L, D] : {std::pair<std::int64_t, std::int64_t>{8197, 1}, {2051, 3}, {260, 5}}) {
    for (const char* form : {"", "backward"}) {
      SCOPED_TRACE("dispatch --" + std::string(form) + " L " + std::to_string(L) + ", D " + std::to_string(D));
      const Operator& definition = scan_operator(form);
      expect_stage_matches("dispatch", drawn(1, 1, L, D, D, definition), definition);
    }
  }
  expect_match(2, 1, 9, 2, 1, {.heads_inside = true, .row_padding = 1});
}

class LengthsTest : public testing::TestWithParam<std::int64_t> {};

// Time contiguous, four channels and 32 per block; 16 bytes at a time and 4.
TEST_P(LengthsTest, AreAllRight) {
  expect_match(1, 2, GetParam(), 1, 1);
  expect_match(1, 1, GetParam(), 4, 4);
  expect_match(1, 1, GetParam(), 5, 1);
  expect_match(1, 1, GetParam(), 40, 40);
}

INSTANTIATE_TEST_SUITE_P(AroundPowersOfTwo, LengthsTest,
                         testing::Values(1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513,
                                         1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097));

// Around the largest tile's end, and several tiles of several sequences.
TEST(ShapesTest, TileEnds) {
  for (const std::int64_t L : {8191, 8192, 8193, 16385, 24580}) expect_match(1, 3, L, 1, 1);
  for (const std::int64_t L : {2047, 2048, 2049, 6148}) expect_match(1, 2, L, 4, 4);
}

// More tiles than a warp looks back at in one go.
TEST(ShapesTest, ManyTiles) {
  for (const auto& [L, D] : {std::pair<std::int64_t, std::int64_t>{300000, 1}, {300001, 1}, {20000, 32}, {40000, 4}}) {
    SCOPED_TRACE("L " + std::to_string(L) + ", D " + std::to_string(D));
    const Problem problem = drawn(1, 1, L, D, D);
    for (const char* name : {"single_pass", "warp_look_back", "channel_lanes", "dispatch"}) {
      SCOPED_TRACE(name);
      if (D == 1 || L <= 20000) expect_stage_matches(name, problem);
    }
    if (D == 1 && L % 4 == 0) expect_stage_matches("wide_tiles", problem);
  }
}

TEST(ShapesTest, Widths) {
  for (const std::int64_t D : {1, 2, 3, 4, 5, 8, 31, 32, 33, 36, 64, 130}) {
    expect_match(1, 1, 300, D, D);
    expect_match(1, 1, 300, D, 1);
  }
}

TEST(ShapesTest, ManyHeads) {
  expect_match(7, 10, 66, 3, 3);
  expect_match(70, 1, 2, 33, 1);
  expect_match(3, 70, 65, 1, 1);
}

// Heads inside positions, as PyTorch's [B, L, H, D]; padding that leaves rows aligned to 16 bytes, and that does not.
TEST(ShapesTest, Strides) {
  for (const bool heads_inside : {false, true}) {
    for (const std::int64_t padding : {0, 3, 4}) {
      SCOPED_TRACE(std::string(heads_inside ? "[B, L, H, D]" : "[B, H, L, D]") + ", padding " +
                   std::to_string(padding));
      for (const std::int64_t D : {1, 4, 36}) {
        expect_match(2, 3, 300, D, D, {.heads_inside = heads_inside, .row_padding = padding});
        expect_match(2, 3, 300, D, 1, {.heads_inside = heads_inside, .row_padding = padding});
      }
    }
  }
}

TEST(ShapesTest, WithoutInitialState) {
  for (const char* form : {"", "backward"}) {
    const Operator& definition = scan_operator(form);
    for (const std::int64_t D : {1, 3, 40}) {
      Problem problem = drawn(2, 2, 600, D, D, definition);
      problem.inputs.erase("initial_state");
      expect_stages_match(problem, {}, definition);
    }
  }
}

}  // namespace
}  // namespace tutorial
