#pragma once
/// @file
/// What the tests of hard numbers share, which go through every operator of a chapter: a small problem, and for how many
/// lengths and seeds.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "common/chapter/input_rounding.hpp"
#include "common/random.hpp"
#include "common/test/stages.hpp"

namespace tutorial {

inline constexpr std::int64_t kSmallWidth = 16;  ///< Dk and Dv

/// Whether the operator has an input of this name.
inline bool has_input(const Operator& definition, const char* name) {
  return std::ranges::count(definition.inputs(), name, &Input::name) > 0;
}

/// A small problem with all optional inputs, such as dfinal_state.
inline Problem small_problem(const Operator& definition, std::uint64_t seed, std::int64_t L) {
  ProblemRequest request{.seed = seed, .modest = true};
  // Each dg of a gate for all rows is a number that by chance may be far smaller than the terms of its sum: so there
  // are some more.
  const std::int64_t H = L == 1 ? 16 : L == 17 ? 4 : 1;
  for (const auto& [symbol, size] :
       {std::pair("B", std::int64_t{1}), {"H", H}, {"L", L}, {"Dk", kSmallWidth}, {"Dv", kSmallWidth}}) {
    if (definition.has_symbol(symbol)) request.sizes[symbol] = size;
  }
  if (definition.has_symbol("Hk")) {  // two heads for each of queries and keys
    request.sizes["Hk"] = H;
    request.sizes["H"] = 2 * H;
  }
  if (definition.has_symbol("D")) request.sizes["D"] = kSmallWidth;
  if (definition.has_symbol("P")) request.sizes["P"] = L / 2;
  Problem problem = make_problem(definition, request);
  for (const Input& input : definition.inputs()) {
    if (!input.optional || input.dtype != Dtype::fp32) continue;
    Tensor tensor(Dtype::fp32, shape_of(input.dims, problem.sizes));
    normal()(Random(problem.seed, input.name), problem.sizes, tensor);
    problem.inputs.insert_or_assign(input.name, std::move(tensor));
  }
  return problem;
}

/// The largest error of a stage, as a multiple of what the runner allows it.
/// @param reference on the stage's inputs
inline double error_in_tolerances(const Operator& definition, const Stage& stage, const Problem& problem,
                                  const Outputs& reference) {
  const Dtype dtype = storage_of(stage);
  const double usual = tolerance_of(stage, problem.sizes);
  Outputs known;
  double worst = 0;
  for (const auto& [name, out] : evaluate(definition, stage, problem)) {
    const Comparison found = compare(name, out, reference);
    if (found.within(usual)) continue;
    EXPECT_TRUE(std::isfinite(found.error)) << describe(found, name);
    if (known.empty()) known = amplification(definition, problem, dtype);
    worst = std::max(
        worst, found.error / amplified(usual, name, dtype, known, most_amplified(stage, problem, name, reference)));
  }
  return worst;
}

/// A length and a seed.
struct SmallDraw {
  std::int64_t L;
  std::uint64_t seed;
};

/// Those of case number `number` of a test: one draw, of lengths in turn. The environment variable TEST_DRAWS asks for
/// that many draws of each length instead.
inline std::vector<SmallDraw> small_draws(std::uint64_t number) {
  constexpr std::int64_t kLengths[] = {1, 17, 64, 65, 130};
  const char* asked = std::getenv("TEST_DRAWS");
  if (asked == nullptr) return {{kLengths[number % std::size(kLengths)], number}};
  std::vector<SmallDraw> draws;
  for (std::uint64_t draw = 0; draw < std::strtoull(asked, nullptr, 10); ++draw) {
    for (const std::int64_t L : kLengths) draws.push_back({L, number + 1000 * draw});
  }
  return draws;
}

}  // namespace tutorial
