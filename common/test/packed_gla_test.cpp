/// @file
/// gla on packed sequences, of the chapters that have it: lengths around a chunk, empty sequences, many of them, long ones
/// that are cut, and neighbours that must not reach a sequence.

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

const Operator& packed_gla() {
  return find_operator("gla", "lengths");
}

Problem packed_gla_problem(const Lengths& lengths, std::int64_t H, std::int64_t Dk, std::int64_t Dv,
                           const std::string& gates = "") {
  return make_problem(packed_gla(),
                      {.sizes = {{"H", H}, {"Dk", Dk}, {"Dv", Dv}}, .seed = 1, .lengths = lengths, .gates = gates});
}

/// Expects the CPU stage and dispatch to be right.
void expect_packed_gla(const Problem& problem, const Layout& layout = {}) {
  EXPECT_EQ(expect_supporting_stages_match(packed_gla(), problem, layout), 2);
}

// For ThreadSanitizer, too.
TEST(PackedGlaTest, Small) {
  expect_packed_gla(packed_gla_problem({37, 0, 1, 66}, 1, 16, 32));
}

TEST(PackedGlaShapesTest, LengthsAroundAChunk) {
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{64, 80}, {128, 128}, {144, 48}, {40, 3}}) {
    SCOPED_TRACE("Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    expect_packed_gla(packed_gla_problem({37, 0, 1, 64, 130}, 2, Dk, Dv));
    expect_packed_gla(packed_gla_problem({0, 63, 65, 0, 0, 15, 17, 2, 0}, 1, Dk, Dv, "weak"));
    expect_packed_gla(packed_gla_problem({100}, 1, Dk, Dv));
  }
}

// A sequence of several segments among short ones: the states are carried with their decays.
TEST(PackedGlaShapesTest, LongAndShort) {
  for (const char* gates : {"usual", "weak", "open"}) {
    SCOPED_TRACE(gates);
    expect_packed_gla(packed_gla_problem({3, 2150, 0, 70, 1025}, 1, 64, 64, gates));
  }
}

TEST(PackedGlaShapesTest, ManySequences) {
  for (const std::int64_t count : {33, 150}) {  // one step of the search for a chunk's sequence, and two
    Lengths lengths;
    for (std::int64_t n = 0; n < count; ++n) lengths.push_back(n * 37 % 11);
    expect_packed_gla(packed_gla_problem(lengths, 1, 16, 16));
  }
}

TEST(PackedGlaShapesTest, Strides) {
  for (const bool heads_inside : {false, true}) {
    for (const std::int64_t padding : {0, 3, 8}) {
      SCOPED_TRACE(padding);
      expect_packed_gla(packed_gla_problem({37, 0, 1, 64, 30}, 2, 64, 64),
                        {.heads_inside = heads_inside, .row_padding = padding});
    }
  }
}

TEST(PackedGlaShapesTest, StatesMayBeAbsent) {
  Problem problem = packed_gla_problem({37, 0, 150, 64}, 2, 64, 64);
  problem.inputs.erase("initial_state");
  expect_packed_gla(problem);
}

// Closed gates at the borders, where a gate of the next sequence would be taken for one of the last chunk's.
TEST(PackedGlaShapesTest, ClosedGates) {
  for (const float closed : {-60.0f, -std::numeric_limits<float>::infinity()}) {
    Problem problem = packed_gla_problem({37, 66, 64, 5}, 1, 64, 64, "weak");
    const auto g = problem.inputs.at("g").elements<float>();
    for (const std::int64_t t : {0, 36, 37, 38, 102, 103, 167}) {
      std::fill_n(g.begin() + t * 64, t % 2 == 0 ? 64 : 20, closed);
    }
    expect_packed_gla(problem);
  }
}

/// Expects the first sequence to be what it is by itself, whatever the others' q, k and v are.
void expect_first_alone(std::int64_t length, std::int64_t D) {
  Problem problem = packed_gla_problem({length, 64, 5}, 1, D, D);
  const Outputs exact = evaluate_reference(packed_gla(), problem);
  for (const char* name : {"q", "k", "v"}) {
    for (float& x : problem.inputs.at(name).elements<float>().subspan(std::size_t(length * D)))
      x = std::numeric_limits<float>::infinity();
  }
  const Stage& stage = find_stage(packed_gla(), "dispatch");
  const Outputs outputs = evaluate(packed_gla(), stage, problem);
  const auto first = [](const Tensor& of, std::int64_t rows, std::int64_t columns) {
    Tensor part(Dtype::fp32, {1, 1, rows, columns});
    std::copy_n(of.elements<float>().begin(), part.size(), part.elements<float>().begin());
    return part;
  };
  for (const auto& [name, rows] : {std::pair<const char*, std::int64_t>{"o", length}, {"final_state", D}}) {
    EXPECT_LE(compare(first(outputs.at(name), rows, D), first(exact.at(name), rows, D)).error,
              tolerance_of(stage, problem.sizes))
        << name;
  }
}

TEST(PackedGlaShapesTest, NeighboursMayBeNotFinite) {
  for (const std::int64_t length : {70, 8, 1, 63}) {
    expect_first_alone(length, 64);
    expect_first_alone(length, 128);
  }
}

#if TUTORIAL_EMULATOR

TEST(PackedGlaShapesTest, OnOtherCards) {
  for (const char* card : {"rtx3060", "h200,multiprocessors=4"}) {
    SCOPED_TRACE(card);
    const OnCard on_card(card);
    expect_packed_gla(packed_gla_problem({600, 0, 37, 64, 1200, 129}, 2, 64, 128, "weak"));
  }
}

#endif

}  // namespace
}  // namespace tutorial
