/// @file
/// The form `--lengths` of the three operators, with `--key-heads` and `--normalize-keys`: lengths around a chunk, empty
/// sequences, many of them, strong gates, and beta at the ends of its range.

#include <algorithm>
#include <cctype>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "05_deltanet_wy/test/stages.hpp"
#include "common/test/on_card.hpp"

namespace tutorial {
namespace {

using Lengths = std::vector<std::int64_t>;

struct PackedCase {
  const char* name;
  const char* form;
};

void PrintTo(const PackedCase& c, std::ostream* out) {
  *out << c.name << " " << c.form;
}

std::string name_of_case(const testing::TestParamInfo<PackedCase>& info) {
  std::string text = std::string(info.param.name) + "_" + info.param.form;
  std::replace_if(
      text.begin(), text.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return text;
}

class PackedShapesTest : public testing::TestWithParam<PackedCase> {
 protected:
  static const Operator& packed_operator() { return find_operator(GetParam().name, GetParam().form); }

  static Problem problem_of(const Lengths& lengths, std::int64_t H, std::int64_t Dk, std::int64_t Dv,
                            const std::string& gates = "") {
    ProblemRequest request{.sizes = {{"H", H}, {"Dk", Dk}, {"Dv", Dv}, {"C", 64}}, .seed = 1, .lengths = lengths};
    if (has_gates()) request.gates = gates;
    return make_problem(packed_operator(), request);
  }
  static bool has_gates() { return std::string(GetParam().name) != "delta_rule"; }
  static void expect_match(const Problem& problem, const Layout& layout = {}) {
    EXPECT_EQ(expect_supporting_stages_match(packed_operator(), problem, layout), 2);
  }
};

TEST_P(PackedShapesTest, LengthsAroundAChunk) {
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{64, 80}, {128, 128}, {144, 48}, {40, 3}}) {
    SCOPED_TRACE("Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    expect_match(problem_of({0, 37, 0, 0, 1, 64, 65, 130, 0}, 2, Dk, Dv, "weak"));
  }
}

TEST_P(PackedShapesTest, OneSequence) {
  expect_match(problem_of({200}, 2, 64, 64));
}

TEST_P(PackedShapesTest, ManySequences) {
  Lengths lengths;
  for (std::int64_t n = 0; n < 150; ++n) lengths.push_back(n * 37 % 7);
  expect_match(problem_of(lengths, 2, 16, 16));
}

// A sequence of several segments among short ones. Gates that forget less than a segment needs leave its head to others.
TEST_P(PackedShapesTest, LongAndShort) {
  for (const char* gates : {"usual", "weak", "open"}) {
    SCOPED_TRACE(gates);
    expect_match(problem_of({3, 2500, 0, 70, 1025}, 2, 64, 64, gates));
    if (!has_gates()) break;
  }
  if (!has_gates()) expect_match(problem_of({2100, 1}, 1, 128, 192));  // tiles of 128 columns that do not fill the last
}

// What is another sequence's stays there, were it such that sums of it are not finite.
TEST_P(PackedShapesTest, NeighboursOutOfRange) {
  const Problem problem = problem_of({70, 40, 5}, 2, 64, 64);
  Problem hostile = problem_of({70, 40, 5}, 2, 64, 64);
  for (const char* name : {"q", "k", "v"}) {
    Tensor& tensor = hostile.inputs.at(name);
    const std::int64_t L = tensor.shape()[2], width = tensor.shape()[3];
    const auto elements = tensor.elements<float>();
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      if (i / width % L >= 70) elements[std::size_t(i)] = 3e38f;
    }
  }
  const Stage& dispatch = find_stage(packed_operator(), "dispatch");
  const Outputs expected = evaluate(packed_operator(), dispatch, problem);
  const Outputs found = evaluate(packed_operator(), dispatch, hostile);
  const auto a = expected.at("o").elements<float>(), b = found.at("o").elements<float>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::int64_t(i) / 64 % 115 < 70) {
      ASSERT_EQ(a[i], b[i]) << i;
    }
  }
  const auto state = expected.at("final_state").elements<float>(), other = found.at("final_state").elements<float>();
  for (std::size_t i = 0; i < state.size() / 3; ++i) ASSERT_EQ(state[i], other[i]) << i;
}

TEST_P(PackedShapesTest, StatesMayBeAbsent) {
  Problem problem = problem_of({37, 0, 150, 64}, 2, 64, 64);
  problem.inputs.erase("initial_state");
  expect_match(problem);
}

TEST_P(PackedShapesTest, Strides) {
  for (const std::int64_t padding : {3, 8}) {
    SCOPED_TRACE(padding);
    expect_match(problem_of({37, 0, 1, 64, 130}, 2, 64, 64), {.heads_inside = true, .row_padding = padding});
  }
}

// What belongs to the next sequence must not reach this one, however large it is; and a gate of 0 forgets what is there.
TEST_P(PackedShapesTest, StrongGatesAndBetaAtItsEnds) {
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{64, 64}, {128, 64}}) {
    Problem problem = problem_of({65, 3, 0, 100, 64}, 2, Dk, Dv);
    const auto beta = problem.inputs.at("beta").elements<float>();
    for (std::size_t i = 0; i < beta.size(); ++i) beta[i] = i % 3 == 0 ? 0.0f : i % 3 == 1 ? 1.0f : 2.0f;
    if (has_gates()) {
      const auto g = problem.inputs.at("g").elements<float>();
      for (std::size_t i = 0; i < g.size(); i += 7) g[i] = i % 2 == 0 ? -std::numeric_limits<float>::infinity() : -90;
    }
    expect_match(problem);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Packed, PackedShapesTest,
    testing::Values(PackedCase{"delta_rule", "lengths"}, PackedCase{"delta_rule", "lengths+normalize-keys"},
                    PackedCase{"gated_delta_rule", "lengths"}, PackedCase{"gated_delta_rule", "key-heads+lengths"},
                    PackedCase{"gated_delta_rule", "lengths+normalize-keys"}, PackedCase{"kda", "lengths"},
                    PackedCase{"kda", "key-heads+lengths"}, PackedCase{"kda", "key-heads+lengths+normalize-keys"}),
    name_of_case);

}  // namespace
}  // namespace tutorial
