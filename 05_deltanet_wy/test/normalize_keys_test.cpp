/// @file
/// The form `--normalize-keys`: the stages bring keys to length 1 themselves.

#include <algorithm>
#include <cmath>

#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/test/stages.hpp"

namespace tutorial {
namespace {

void expect_match(const Problem& problem, const Layout& layout = {}) {
  expect_stages_match(problem, layout, Rounding::usual, normalized_operator());
}

// The stages on tensor cores in front of dispatch say so.
TEST(NormalizeKeysTest, StagesThatDoNotNormalizeRefuse) {
  const Problem problem = drawn(1, 1, 66, 64, 64, 64, normalized_operator());
  int refused = 0;
  for (const Stage& stage : normalized_operator().stages()) {
    const std::string reason = why_not(normalized_operator(), stage, problem);
    const bool refuses = is_bf16(stage) && stage.name != "dispatch" && stage.name != "specialized_warps";
    EXPECT_EQ(reason.find("keys are not normalised") != std::string::npos, refuses) << stage.name << reason;
    refused += refuses;
  }
  EXPECT_EQ(refused, 9);
}

TEST(NormalizeKeysTest, Small) {
  expect_match(drawn(1, 1, 66, 5, 3, 64, normalized_operator()));
}

TEST(NormalizeKeysTest, Shapes) {
  constexpr std::int64_t kC[] = {16, 32, 64};
  int i = 0;  // so that each two of L, widths and C meet
  for (const std::int64_t L : {1, 63, 65, 300}) {
    for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{64, 64}, {31, 80}, {200, 33}, {256, 16}}) {
      const std::int64_t C = kC[i++ % 3];
      SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", C " + std::to_string(C));
      expect_match(drawn(1, 2, L, Dk, Dv, C, normalized_operator()));
    }
  }
  expect_match(drawn(2, 3, 67, 64, 64, 64, normalized_operator()), {.heads_inside = true, .row_padding = 3});
}

// The other operator on keys that were normalised before gives the same.
TEST(NormalizeKeysTest, IsTheOperatorOnNormalizedKeys) {
  const Problem problem = drawn(2, 1, 130, 40, 24, 64, normalized_operator());
  Problem by_hand = drawn(2, 1, 130, 40, 24);
  for (const auto& [name, tensor] : problem.inputs) by_hand.inputs.insert_or_assign(name, tensor.to(Dtype::fp32));
  const auto k = by_hand.inputs.at("k").elements<float>();
  for (std::size_t row = 0; row < k.size(); row += 40) {
    double squares = double(delta_rule::kKeyEps);
    for (const float x : k.subspan(row, 40)) squares += double(x) * double(x);
    for (float& x : k.subspan(row, 40)) x = float(double(x) / std::sqrt(squares));
  }
  expect_close(evaluate_reference(normalized_operator(), problem), evaluate_reference(delta_rule_operator(), by_hand),
               1e-6);
}

// 0 / sqrt(0 + eps): such a position writes nothing.
TEST(NormalizeKeysTest, KeysOfZeros) {
  Problem problem = drawn(1, 2, 70, 48, 32, 64, normalized_operator());
  const auto k = problem.inputs.at("k").elements<float>();
  for (const std::size_t t : {0, 15, 16, 63, 64, 69}) std::fill_n(k.begin() + std::ptrdiff_t(t * 48), 48, 0.0f);
  expect_match(problem);
  std::ranges::fill(k, 0.0f);
  expect_match(problem);
  for (const Stage& stage : normalized_operator().stages()) {
    if (!why_not(normalized_operator(), stage, problem).empty()) continue;
    const Outputs outputs = evaluate(normalized_operator(), stage, problem);
    EXPECT_TRUE(std::ranges::equal(outputs.at("final_state").elements<float>(),
                                   problem.inputs.at("initial_state").elements<float>()))
        << stage.name;
  }
}

TEST(NormalizeKeysTest, KeysOfAnyLength) {
  for (const float factor : {0x1p-30f, 0x1p-9f, 0x1p30f}) {
    SCOPED_TRACE(factor);
    Problem problem = drawn(1, 1, 100, 32, 48, 64, normalized_operator());
    for (float& x : problem.inputs.at("k").elements<float>()) x *= factor;
    expect_match(problem);
  }
}

}  // namespace
}  // namespace tutorial
