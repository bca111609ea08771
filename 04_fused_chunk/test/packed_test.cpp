/// @file
/// simple_gla on packed sequences: lengths around a chunk, empty sequences, many of them, and long ones that are cut.

#include <vector>

#include "04_fused_chunk/test/stages.hpp"
#include "common/test/on_card.hpp"

namespace tutorial {
namespace {

using Lengths = std::vector<std::int64_t>;

const Operator& packed_operator() {
  return find_operator("simple_gla", "lengths");
}

Problem problem_of(const Lengths& lengths, std::int64_t H, std::int64_t Dk, std::int64_t Dv,
                   const std::string& gates = "") {
  return make_problem(packed_operator(),
                      {.sizes = {{"H", H}, {"Dk", Dk}, {"Dv", Dv}}, .seed = 1, .lengths = lengths, .gates = gates});
}

void expect_match(const Problem& problem, const Layout& layout = {}) {
  EXPECT_EQ(expect_supporting_stages_match(packed_operator(), problem, layout), 2);
}

// For ThreadSanitizer, too.
TEST(PackedTest, Small) {
  expect_match(problem_of({37, 0, 1, 66}, 1, 16, 32));
}

TEST(PackedShapesTest, LengthsAroundAChunk) {
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{64, 80}, {128, 128}, {144, 48}, {40, 3}}) {
    SCOPED_TRACE("Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    expect_match(problem_of({37, 0, 1, 64, 130}, 2, Dk, Dv));
    expect_match(problem_of({0, 63, 65, 0, 0, 128, 2, 0}, 1, Dk, Dv, "weak"));
  }
}

// A sequence of several segments among short ones, on few multiprocessors: the states are carried with their decays.
TEST(PackedShapesTest, LongAndShort) {
  for (const char* gates : {"usual", "weak", "open"}) {
    SCOPED_TRACE(gates);
    expect_match(problem_of({3, 4200, 0, 70, 1025}, 1, 64, 64, gates));
  }
}

TEST(PackedShapesTest, ManySequences) {
  Lengths lengths;
  for (std::int64_t n = 0; n < 200; ++n) lengths.push_back(n * 37 % 11);
  expect_match(problem_of(lengths, 1, 16, 16));
}

TEST(PackedShapesTest, Strides) {
  for (const std::int64_t padding : {0, 3, 8}) {
    SCOPED_TRACE(padding);
    expect_match(problem_of({37, 0, 1, 64, 130}, 2, 64, 64), {.heads_inside = true, .row_padding = padding});
  }
}

TEST(PackedShapesTest, StatesMayBeAbsent) {
  Problem problem = problem_of({37, 0, 150, 64}, 2, 64, 64);
  problem.inputs.erase("initial_state");
  expect_match(problem);
}

#if TUTORIAL_EMULATOR

TEST(PackedShapesTest, OnACardWithFewMultiprocessors) {
  const Problem problem = problem_of({600, 0, 37, 64, 2000, 129}, 4, 64, 128, "weak");
  const OnCard card("rtx3060");
  expect_match(problem);
}

#endif

}  // namespace
}  // namespace tutorial
