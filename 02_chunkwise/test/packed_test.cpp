/// @file
/// Packed sequences: the definition, and every stage over lengths around a chunk, empty sequences, and many of them.

#include <numeric>
#include <vector>

#include "02_chunkwise/packed.hpp"
#include "02_chunkwise/test/stages.hpp"
#include "common/test/on_card.hpp"

namespace tutorial {
namespace {

using Lengths = std::vector<std::int64_t>;

const Operator& packed_operator() {
  return find_operator("linear_attention", "lengths");
}

Problem problem_of(const Lengths& lengths, std::int64_t H, std::int64_t Dk, std::int64_t Dv) {
  return make_problem(packed_operator(), {.sizes = {{"H", H}, {"Dk", Dk}, {"Dv", Dv}}, .seed = 1, .lengths = lengths});
}

/// @param fewest stages that have to support it
void expect_match(const Problem& problem, const Layout& layout = {}, int fewest = 3) {
  EXPECT_GE(expect_supporting_stages_match(packed_operator(), problem, layout), fewest);
}

/// Positions begin to begin + length of a tensor [1, H, L, D], or entry n of a state [N, H, Dk, Dv].
Tensor part_of(const Tensor& whole, std::int64_t begin, std::int64_t length) {
  const Shape& shape = whole.shape();
  const std::int64_t H = shape[1], L = shape[2], D = shape[3];
  Tensor part(Dtype::fp32, {1, H, length, D});
  for (std::int64_t h = 0; h < H; ++h) {
    std::copy_n(whole.elements<float>().begin() + (h * L + begin) * D, length * D,
                part.elements<float>().begin() + h * length * D);
  }
  return part;
}
Tensor entry_of(const Tensor& states, std::int64_t n) {
  const Shape& shape = states.shape();
  Tensor entry(Dtype::fp32, {1, shape[1], shape[2], shape[3]});
  std::copy_n(states.elements<float>().begin() + n * entry.size(), entry.size(), entry.elements<float>().begin());
  return entry;
}

// The definition: the same as each sequence by itself, and an empty one leaves its state as it is.
TEST(PackedTest, IsTheOperatorOnEachSequence) {
  const Lengths lengths{3, 0, 66, 1};
  const Problem problem = problem_of(lengths, 2, 5, 3);
  const Outputs all = evaluate_reference(packed_operator(), problem);
  std::int64_t begin = 0;
  for (std::size_t n = 0; n < lengths.size(); ++n) {
    SCOPED_TRACE(n);
    const Tensor start = entry_of(problem.inputs.at("initial_state"), std::int64_t(n));
    const Tensor end = entry_of(all.at("final_state"), std::int64_t(n));
    if (lengths[n] == 0) {
      EXPECT_EQ(compare(end, start).error, 0);
      continue;
    }
    Problem alone = make_problem(linear_attention_operator(),
                                 {.sizes = {{"B", 1}, {"H", 2}, {"L", lengths[n]}, {"Dk", 5}, {"Dv", 3}}});
    for (const char* name : {"q", "k", "v"}) {
      alone.inputs.at(name) = part_of(problem.inputs.at(name), begin, lengths[n]);
    }
    alone.inputs.at("initial_state") = start.to(Dtype::fp32);
    const Outputs expected = evaluate_reference(linear_attention_operator(), alone);
    EXPECT_EQ(compare(part_of(all.at("o"), begin, lengths[n]), expected.at("o")).error, 0);
    EXPECT_EQ(compare(end, expected.at("final_state")).error, 0);
    begin += lengths[n];
  }
}

// For ThreadSanitizer, too.
TEST(PackedTest, Small) {
  expect_match(problem_of({37, 0, 1, 66}, 1, 16, 32));
  expect_match(problem_of({5, 0, 70}, 1, 5, 3), {}, 2);
}

TEST(PackedShapesTest, LengthsAroundAChunk) {
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{64, 80}, {128, 128}, {144, 48}, {40, 3}}) {
    SCOPED_TRACE("Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    const int fewest = Dk % 16 == 0 ? 3 : 2;
    expect_match(problem_of({37, 0, 1, 64, 130}, 2, Dk, Dv), {}, fewest);
    expect_match(problem_of({0, 63, 65, 0, 0, 128, 2, 0}, 1, Dk, Dv), {}, fewest);
    expect_match(problem_of({0, 1, 0}, 1, Dk, Dv), {}, fewest);
    expect_match(problem_of({200}, 1, Dk, Dv), {}, fewest);
  }
}

TEST(PackedShapesTest, ManySequences) {
  Lengths lengths(300);
  std::iota(lengths.begin(), lengths.end(), 0);
  for (std::int64_t& length : lengths) length = length * 37 % 11;
  expect_match(problem_of(lengths, 1, 16, 16));
}

// A long sequence among short ones: `packed` cuts all of some length, `dispatch` the long one alone.
TEST(PackedShapesTest, LongAndShort) {
  expect_match(problem_of({3, 2500, 0, 70, 129}, 1, 64, 64));
  expect_match(problem_of({1024, 1025, 1023}, 1, 128, 128));
}

TEST(PackedShapesTest, Strides) {
  for (const Layout& layout : kOddLayouts) {
    SCOPED_TRACE(name_of(layout));
    expect_match(problem_of({37, 0, 1, 64, 130}, 2, 64, 64), layout, layout.row_padding == 3 ? 2 : 3);
  }
}

TEST(PackedShapesTest, StatesMayBeAbsent) {
  Problem problem = problem_of({37, 0, 150, 64}, 2, 64, 64);
  problem.inputs.erase("initial_state");
  expect_match(problem);
}

// What stands behind a sequence must not reach it, whatever it is.
TEST(PackedShapesTest, NeighboursMayBeNotFinite) {
  Problem problem = problem_of({70, 64, 5}, 1, 64, 64);
  for (const char* name : {"q", "k", "v"}) {
    for (float& x : problem.inputs.at(name).elements<float>().subspan(70 * 64))
      x = std::numeric_limits<float>::infinity();
  }
  const Outputs exact = evaluate_reference(packed_operator(), problem);
  for (const char* name : {"packed", "dispatch"}) {
    SCOPED_TRACE(name);
    const Stage& stage = find_stage(packed_operator(), name);
    const Outputs outputs = evaluate(packed_operator(), stage, problem);
    const auto first = [](const Outputs& of) { return part_of(of.at("o"), 0, 70); };
    EXPECT_LE(compare(first(outputs), first(exact)).error, tolerance_of(stage, problem.sizes));
    EXPECT_LE(compare(entry_of(outputs.at("final_state"), 0), entry_of(exact.at("final_state"), 0)).error,
              tolerance_of(stage, problem.sizes));
  }
}

#if TUTORIAL_EMULATOR

// Few multiprocessors: segments of several chunks.
TEST(PackedShapesTest, AnotherCard) {
  const Problem problem = problem_of({600, 0, 37, 64, 2000, 129}, 4, 64, 128);
  const OnCard card("rtx3060");
  expect_match(problem);
}

#endif

std::string choice(const char* card, std::int64_t H, std::int64_t L, int N, int Dk) {
  const OnCard on_card(card);
  linear_attention::PackedBf16Arguments p{};
  linear_attention::Bf16Arguments& a = p.all;
  a.B = 1;
  a.H = int(H);
  a.L = int(L);
  a.Dk = Dk;
  a.Dv = 128;
  a.q = a.k = packed<const __nv_bfloat16>(nullptr, H, L, Dk);
  a.v = packed<const __nv_bfloat16>(nullptr, H, L, 128);
  a.o = packed<__nv_bfloat16>(nullptr, H, L, 128);
  p.N = N;
  return dispatch_packed_note(p);
}

#if TUTORIAL_EMULATOR

TEST(PackedDispatchTest, CutsByTheSumOfTheLengths) {
  EXPECT_EQ(choice("h200", 8, 65536, 32, 128), "warpgroups, segments of 8000 positions at most, 64 columns per block");
  EXPECT_EQ(choice("h200", 8, 1000, 32, 128), "warpgroups, 64 columns per block");
  EXPECT_EQ(choice("a100", 8, 65536, 32, 128), "packed, segments of 4864 positions at most, 128 columns per block");
  EXPECT_EQ(choice("h200", 8, 65536, 32, 40).substr(0, 44), "fused in fp32, one sequence after the other:");
}

#endif

}  // namespace
}  // namespace tutorial
