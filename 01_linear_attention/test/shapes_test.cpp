/// @file
/// Every stage over odd shapes and memory layouts, against the double reference.

#include "01_linear_attention/test/stages.hpp"

namespace tutorial {
namespace {

class ShapesTest : public testing::TestWithParam<const char*> {
 protected:
  const Operator& definition() const { return find_operator(GetParam()); }

  Problem problem(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv) const {
    return make_problem(definition(), {.sizes = {{"B", B}, {"H", H}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}}, .seed = 1});
  }
};

// Few threads, odd everything: for ThreadSanitizer, too.
TEST_P(ShapesTest, Small) {
  expect_stages_match(definition(), problem(1, 2, 19, 5, 3));
  expect_stages_match(definition(), problem(2, 1, 9, 33, 2), 1e-5, {.heads_inside = true, .row_padding = 1});
}

constexpr std::int64_t kWidths[] = {1, 3, 40, 64, 65, 128, 256};

TEST_P(ShapesTest, Widths) {
  for (const std::int64_t Dk : kWidths) {
    for (const std::int64_t Dv : kWidths) {
      SCOPED_TRACE("Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
      expect_stages_match(definition(), problem(1, 1, 33, Dk, Dv));
    }
  }
}

TEST_P(ShapesTest, Lengths) {
  for (const std::int64_t L : {1, 2, 31, 33, 65}) {
    for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{40, 3}, {65, 64}, {64, 65}, {129, 40}}) {
      SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
      expect_stages_match(definition(), problem(2, 1, L, Dk, Dv));
    }
  }
}

TEST_P(ShapesTest, LengthOfAThousand) {
  expect_stages_match(definition(), problem(1, 2, 1000, 64, 64));
  expect_stages_match(definition(), problem(1, 1, 1000, 40, 65));
}

TEST_P(ShapesTest, SeventyHeads) {
  expect_stages_match(definition(), problem(10, 7, 31, 40, 33));
  expect_stages_match(definition(), problem(70, 1, 2, 64, 64));
  expect_stages_match(definition(), problem(1, 70, 33, 3, 1));
}

TEST_P(ShapesTest, WiderThanTheRegisterStages) {
  expect_stages_match(definition(), problem(1, 2, 20, 300, 24));
  expect_stages_match(definition(), problem(1, 1, 20, 200, 200));
  expect_stages_match(definition(), problem(1, 1, 20, 16, 600));
}

// Heads inside positions, as PyTorch's [B, L, H, D]; padding that leaves rows aligned to 16 bytes, and that does not.
TEST_P(ShapesTest, Strides) {
  for (const bool heads_inside : {false, true}) {
    for (const std::int64_t padding : {0, 3, 4}) {
      for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{64, 64}, {40, 65}, {128, 32}, {130, 20}}) {
        SCOPED_TRACE(std::string(heads_inside ? "[B, L, H, D]" : "[B, H, L, D]") + ", padding " +
                     std::to_string(padding) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
        expect_stages_match(definition(), problem(2, 3, 37, Dk, Dv), 1e-5,
                            {.heads_inside = heads_inside, .row_padding = padding});
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, ShapesTest,
                         testing::Values("causal_dot_product", "causal_attention", "bidirectional_attention"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tutorial
