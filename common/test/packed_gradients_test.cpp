/// @file
/// The gradients of packed sequences: lengths around a chunk, empty sequences, many of them, and each sequence by itself.
/// Part of the tests of every chapter that has such gradients.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "common/random.hpp"
#include "common/test/on_card.hpp"
#include "common/test/stages.hpp"

namespace tutorial {
namespace {

using PackedLengths = std::vector<std::int64_t>;

constexpr std::int64_t kHeads = 2;

enum class Forms { all, first };  // of an operator: with normalised keys, too, or without

/// Calls f with each operator whose gradients take packed sequences.
void for_each_packed(Forms forms, const std::function<void(const Operator& packed)>& f) {
  static const Chapter contents = chapter();
  int found = 0;
  for (const Operator& definition : contents.operators()) {
    const auto& options = definition.form_options();
    if (!options.contains("backward") || !options.contains("lengths") || shares_heads(definition)) continue;
    if (options.contains("normalize-keys") && forms == Forms::first) continue;
    SCOPED_TRACE(definition.label());
    ++found;
    f(definition);
  }
  EXPECT_GE(found, 1);
}

enum class States { given, absent };

Problem packed_problem(const Operator& definition, const PackedLengths& lengths, std::int64_t Dk, std::int64_t Dv,
                       States states = States::given, const std::string& gates = "") {
  const bool has_gates = std::ranges::any_of(definition.inputs(), &Input::gate);
  Problem problem = make_problem(definition, {.sizes = {{"H", kHeads}, {"Dk", Dk}, {"Dv", Dv}},
                                              .seed = 4,
                                              .lengths = lengths,
                                              .gates = has_gates ? gates : ""});
  if (states == States::absent) {
    problem.inputs.erase("initial_state");
    return problem;
  }
  Tensor gradient(Dtype::fp32, problem.inputs.at("initial_state").shape());
  normal()(Random(problem.seed, "dfinal_state"), problem.sizes, gradient);
  problem.inputs.insert_or_assign("dfinal_state", std::move(gradient));
  return problem;
}

/// On the CPU and by dispatch, at least.
void expect_match(const Operator& definition, const Problem& problem, const Layout& layout = {}) {
  EXPECT_GE(expect_supporting_stages_match(definition, problem, layout), 2);
}

// For ThreadSanitizer, too.
TEST(PackedGradientsTest, Small) {
  for_each_packed(Forms::all, [](const Operator& packed) {
    expect_match(packed, packed_problem(packed, {37, 0, 1, 66}, 16, 32));
  });
}

TEST(PackedGradientsShapesTest, LengthsAroundAChunk) {
  for_each_packed(Forms::first, [](const Operator& packed) {
    expect_match(packed, packed_problem(packed, {37, 0, 1, 64, 130}, 64, 80));
    expect_match(packed, packed_problem(packed, {0, 63, 65, 0, 0, 2, 0}, 80, 16, States::absent, "weak"));
    expect_match(packed, packed_problem(packed, {0, 30, 65, 0}, 40, 3));  // one after the other
    expect_match(packed, packed_problem(packed, {0, 1, 0}, 16, 16));
    expect_match(packed, packed_problem(packed, {70}, 128, 128));
  });
}

TEST(PackedGradientsShapesTest, ManySequences) {
  PackedLengths lengths;
  for (std::int64_t n = 0; n < 35; ++n) lengths.push_back(n * 37 % 11);
  for_each_packed(Forms::first,
                  [&](const Operator& packed) { expect_match(packed, packed_problem(packed, lengths, 16, 16)); });
}

// A sequence of several segments among short ones: states are carried over borders, in both directions.
TEST(PackedGradientsShapesTest, LongAndShort) {
  for_each_packed(Forms::first, [](const Operator& packed) {
    const bool cuts = packed.name() == "linear_attention" || packed.name() == "simple_gla";  // others walk them whole
    if (cuts) expect_match(packed, packed_problem(packed, {3, 2200, 0, 70, 1025}, 32, 32, States::given, "weak"));
  });
}

TEST(PackedGradientsShapesTest, Strides) {
  for_each_packed(Forms::first, [](const Operator& packed) {
    for (const std::int64_t padding : {0, 3, 8}) {
      SCOPED_TRACE(padding);
      expect_match(packed, packed_problem(packed, {37, 0, 1, 64, 30}, 16, 32),
                   {.heads_inside = true, .row_padding = padding});
    }
  });
}

/// Positions begin to begin + length of a tensor [1, H, L, ...].
Tensor positions_of(const Tensor& whole, std::int64_t begin, std::int64_t length) {
  Shape shape = whole.shape();
  const std::int64_t L = shape[2], row = whole.size() / (shape[1] * L);
  shape[2] = length;
  Tensor part(Dtype::fp32, shape);
  for (std::int64_t h = 0; h < shape[1]; ++h) {
    std::copy_n(whole.elements<float>().begin() + (h * L + begin) * row, length * row,
                part.elements<float>().begin() + h * length * row);
  }
  return part;
}

/// Entry n of a tensor [N, ...].
Tensor entry_of(const Tensor& whole, std::int64_t n) {
  Shape shape = whole.shape();
  shape[0] = 1;
  Tensor entry(Dtype::fp32, shape);
  std::copy_n(whole.elements<float>().begin() + n * entry.size(), entry.size(), entry.elements<float>().begin());
  return entry;
}

/// The part of a tensor of a packed problem that belongs to a sequence.
Tensor of_sequence(const Dims& dims, const Tensor& whole, std::int64_t n, std::int64_t begin, std::int64_t length) {
  return dims[0] == "N" ? entry_of(whole, n) : positions_of(whole, begin, length);
}

/// The stage for one sequence that has the kernels of dispatch for packed sequences, if there is one.
const char* stage_of_same_kernels(const std::string& name) {
  static const std::map<std::string, const char*> stages{{"linear_attention", "dispatch"},
                                                         {"simple_gla", "pipelined"},
                                                         {"gla", "materialized"},
                                                         {"gated_delta_rule", "tensor_core"},
                                                         {"kda", "tensor_core"}};
  const auto found = stages.find(name);
  return found == stages.end() ? nullptr : found->second;
}

// To the last digit: each sequence has the gradients that the stage for one sequence gives, and an empty one hands the
// gradient of its final state on.
TEST(PackedGradientsTest, AreThoseOfEachSequenceByItself) {
  for_each_packed(Forms::all, [](const Operator& packed) {
    std::string form = "backward";
    if (packed.form_options().contains("normalize-keys")) form += "+normalize-keys";
    const Operator& alone = find_operator(packed.name(), form);
    const PackedLengths lengths{70, 0, 1, 129};
    const Problem problem = packed_problem(packed, lengths, 64, 32);
    for (const char* name : {"chunkwise", "dispatch"}) {
      SCOPED_TRACE(name);
      const char* same = name == std::string("dispatch") ? stage_of_same_kernels(alone.name()) : name;
      if (same == nullptr) continue;
      const Outputs all = evaluate(packed, find_stage(packed, name), problem);
      std::int64_t begin = 0;
      for (std::size_t n = 0; n < lengths.size(); begin += lengths[n++]) {
        SCOPED_TRACE(n);
        const auto part = [&](const Dims& dims, const Tensor& whole) {
          return of_sequence(dims, whole, std::int64_t(n), begin, lengths[n]);
        };
        if (lengths[n] == 0) {
          const Tensor handed_on = entry_of(problem.inputs.at("dfinal_state"), std::int64_t(n));
          EXPECT_EQ(compare(entry_of(all.at("dinitial_state"), std::int64_t(n)), handed_on).error, 0);
          continue;
        }
        Problem single = make_problem(
            alone, {.sizes = {{"B", 1}, {"H", kHeads}, {"L", lengths[n]}, {"Dk", 64}, {"Dv", 32}}, .seed = 4});
        for (const Input& input : packed.inputs()) {
          if (input.offsets) continue;
          single.inputs.insert_or_assign(input.name, part(input.dims, problem.inputs.at(input.name)));
        }
        const Outputs expected = evaluate(alone, find_stage(alone, same), single);
        for (const Output& output : packed.outputs()) {
          EXPECT_EQ(compare(part(output.dims, all.at(output.name)), expected.at(output.name)).error, 0) << output.name;
        }
      }
    }
  });
}

// What stands behind a sequence, or before it, must not reach it, whatever it is.
TEST(PackedGradientsShapesTest, NeighboursMayBeNotFinite) {
  for_each_packed(Forms::first, [](const Operator& packed) {
    const PackedLengths lengths{70, 64, 5};
    Problem problem = packed_problem(packed, lengths, 32, 32);
    const Outputs exact = evaluate_reference(packed, problem, Dtype::bf16);
    for (const char* name : {"q", "k", "v", "do"}) {
      for (std::int64_t h = 0; h < kHeads; ++h) {
        for (float& x : problem.inputs.at(name).elements<float>().subspan((h * 139 + 70) * 32, 64 * 32))
          x = std::numeric_limits<float>::infinity();
      }
    }
    const Stage& stage = find_stage(packed, "dispatch");
    const Outputs outputs = evaluate(packed, stage, problem);
    for (const auto& [n, begin] : {std::pair<std::int64_t, std::int64_t>{0, 0}, {2, 134}}) {
      SCOPED_TRACE(n);
      Outputs expected, found;
      const auto part = [&, n = n, begin = begin](const Dims& dims, const Tensor& whole) {
        return of_sequence(dims, whole, n, begin, lengths[std::size_t(n)]);
      };
      for (const Output& output : packed.outputs()) {
        found.insert_or_assign(output.name, part(output.dims, outputs.at(output.name)));
        expected.insert_or_assign(output.name, part(output.dims, exact.at(output.name)));
        const auto subtracted = exact.find(subtracted_of(output.name));
        if (subtracted != exact.end())
          expected.insert_or_assign(subtracted->first, part(output.dims, subtracted->second));
      }
      expect_close(found, expected, 2 * tolerance_of(stage, problem.sizes));  // of fewer elements
    }
  });
}

#if TUTORIAL_EMULATOR

// Few multiprocessors, and kernels for all cards.
TEST(PackedGradientsShapesTest, OnACardWithFewMultiprocessors) {
  for_each_packed(Forms::first, [](const Operator& packed) {
    const Problem problem = packed_problem(packed, {200, 0, 37, 64, 129}, 64, 64, States::given, "weak");
    const OnCard card("rtx3060");
    expect_match(packed, problem);
  });
}

#endif

}  // namespace
}  // namespace tutorial
