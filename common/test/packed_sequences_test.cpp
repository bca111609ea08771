/// @file
/// Packed sequences of operators with gates: lengths around a chunk, empty sequences, many of them, long ones that are cut,
/// and neighbours that must not reach a sequence. Part of the tests of the chapters that have such operators.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/test/on_card.hpp"
#include "common/test/stages.hpp"

namespace tutorial {
namespace {

using Lengths = std::vector<std::int64_t>;
using Widths = std::pair<std::int64_t, std::int64_t>;

/// Calls f with each operator of the chapter that --lengths runs.
template <class F>
void for_each_packed(F f) {
  const Chapter contents = chapter();
  int count = 0;
  for (const Operator& definition : contents.operators()) {
    if (definition.form() != "lengths") continue;
    SCOPED_TRACE(definition.label());
    ++count;
    f(definition);
  }
  EXPECT_GE(count, 1);
}

Problem packed_problem(const Operator& definition, const Lengths& lengths, std::int64_t H, Widths widths,
                       const std::string& gates = "") {
  return make_problem(definition, {.sizes = {{"H", H}, {"Dk", widths.first}, {"Dv", widths.second}},
                                   .seed = 1,
                                   .lengths = lengths,
                                   .gates = gates});
}

/// Expects the CPU stage and dispatch of each operator to be right.
void expect_packed(const Lengths& lengths, std::int64_t H, Widths widths, const std::string& gates = "",
                   const Layout& layout = {}) {
  for_each_packed([&](const Operator& definition) {
    const Problem problem = packed_problem(definition, lengths, H, widths, gates);
    EXPECT_EQ(expect_supporting_stages_match(definition, problem, layout), 2);
  });
}

// For ThreadSanitizer, too.
TEST(PackedSequencesTest, Small) {
  expect_packed({37, 0, 1, 66}, 1, {16, 32});
}

TEST(PackedSequencesShapesTest, LengthsAroundAChunk) {
  for (const Widths& widths : {Widths{64, 80}, {128, 128}, {144, 48}, {40, 3}}) {
    SCOPED_TRACE("Dk " + std::to_string(widths.first) + ", Dv " + std::to_string(widths.second));
    expect_packed({37, 0, 1, 64, 130}, 2, widths);
    expect_packed({0, 63, 65, 0, 0, 15, 17, 2, 0}, 1, widths, "weak");
    expect_packed({100}, 1, widths);
  }
}

// A sequence of several segments among short ones: the states are carried with their decays.
TEST(PackedSequencesShapesTest, LongAndShort) {
  for (const char* gates : {"usual", "weak", "open"}) {
    SCOPED_TRACE(gates);
    expect_packed({3, 2150, 0, 70, 1025}, 1, {64, 64}, gates);
  }
}

TEST(PackedSequencesShapesTest, ManySequences) {
  for (const std::int64_t count : {33, 150}) {  // a search among 32 takes one step
    Lengths lengths;
    for (std::int64_t n = 0; n < count; ++n) lengths.push_back(n * 37 % 11);
    expect_packed(lengths, 1, {16, 16});
  }
}

TEST(PackedSequencesShapesTest, Strides) {
  for (const Layout& layout : kOddLayouts) {
    SCOPED_TRACE(name_of(layout));
    expect_packed({37, 0, 1, 64, 30}, 2, {64, 64}, "", layout);
  }
}

TEST(PackedSequencesShapesTest, StatesMayBeAbsent) {
  for_each_packed([](const Operator& definition) {
    Problem problem = packed_problem(definition, {37, 0, 150, 64}, 2, {64, 64});
    problem.inputs.erase("initial_state");
    EXPECT_EQ(expect_supporting_stages_match(definition, problem), 2);
  });
}

// Closed gates at the borders, where one of the next sequence might be taken for one of the last chunk's.
TEST(PackedSequencesShapesTest, ClosedGates) {
  for (const float closed : {-60.0f, -std::numeric_limits<float>::infinity()}) {
    for_each_packed([&](const Operator& definition) {
      Problem problem = packed_problem(definition, {37, 66, 64, 5}, 1, {64, 64}, "weak");
      const auto g = problem.inputs.at("g").elements<float>();
      const std::int64_t width = std::ssize(g) / 172;  // of 172 positions
      for (const std::int64_t t : {0, 36, 37, 38, 102, 103, 167}) {
        std::fill_n(g.begin() + t * width, t % 2 == 0 ? width : (width + 2) / 3, closed);
      }
      EXPECT_EQ(expect_supporting_stages_match(definition, problem), 2);
    });
  }
}

/// Expects the first sequence to be what it is by itself, whatever q, k and v of the others are.
void expect_first_alone(const Operator& definition, std::int64_t length, std::int64_t D) {
  Problem problem = packed_problem(definition, {length, 64, 5}, 1, {D, D});
  const Outputs exact = evaluate_reference(definition, problem);
  for (const char* name : {"q", "k", "v"}) {
    for (float& x : problem.inputs.at(name).elements<float>().subspan(std::size_t(length * D))) {
      x = std::numeric_limits<float>::infinity();
    }
  }
  const Stage& stage = find_stage(definition, "dispatch");
  const Outputs outputs = evaluate(definition, stage, problem);
  for (const auto& [name, rows] : {std::pair<const char*, std::int64_t>{"o", length}, {"final_state", D}}) {
    const auto first = [&, rows = rows](const Tensor& of) {
      Tensor part(Dtype::fp32, {1, 1, rows, D});
      std::copy_n(of.elements<float>().begin(), part.size(), part.elements<float>().begin());
      return part;
    };
    EXPECT_LE(compare(first(outputs.at(name)), first(exact.at(name))).error, tolerance_of(stage, problem.sizes))
        << name << ", length " << length;
  }
}

TEST(PackedSequencesShapesTest, NeighboursMayBeNotFinite) {
  for_each_packed([](const Operator& definition) {
    for (const std::int64_t length : {70, 8, 1, 63}) expect_first_alone(definition, length, 64);
    expect_first_alone(definition, 75, 128);
  });
}

#if TUTORIAL_EMULATOR

// On cards without products of warpgroups, and where there are so few multiprocessors that tiles have 128 columns.
TEST(PackedSequencesShapesTest, OnOtherCards) {
  for (const char* card : {"a100", "rtx3060", "h200,multiprocessors=2"}) {
    SCOPED_TRACE(card);
    const OnCard on_card(card);
    expect_packed({37, 0, 1, 64, 130}, 2, {128, 128});
    for_each_packed([](const Operator& definition) { expect_first_alone(definition, 75, 128); });
  }
  const OnCard on_card("h200,multiprocessors=1");
  expect_packed({300, 0, 64, 1100, 29}, 2, {64, 80}, "weak");
  expect_packed({64, 600, 37}, 1, {128, 192});
}

#endif

}  // namespace
}  // namespace tutorial
