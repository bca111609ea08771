#include "05_deltanet_wy/demonstrations/gated_delta_rule_neighbours.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "04_fused_chunk/simple_gla.hpp"
#include "05_deltanet_wy/demonstrations/drawn_rows.hpp"
#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "common/compare.hpp"

namespace tutorial::gated_delta_rule {
namespace {

using delta_rule::drawn_rows, delta_rule::view_of;

constexpr int B = 1, H = 2, L = 80, Dk = 96, Dv = 40, C = 32;

/// What an operator computes.
struct Results {
  Tensor o{Dtype::fp32, {B, H, L, Dv}}, final_state{Dtype::fp32, {B, H, Dk, Dv}};
};

/// Inputs of both operators, and their results.
struct Case {
  Tensor q = drawn_rows("q", {B, H, L, Dk}), k = drawn_rows("k", {B, H, L, Dk}), v = drawn_rows("v", {B, H, L, Dv}),
         beta{Dtype::fp32, {B, H, L, 1}}, g{Dtype::fp32, {B, H, L, 1}};
  float scale = 1 / std::sqrt(float(Dk));
  Results gated, neighbour;

  /// The arguments of delta_rule.
  delta_rule::FloatArguments arguments(Results& results) const {
    return {B,
            H,
            L,
            Dk,
            Dv,
            C,
            scale,
            /*normalize_keys=*/false,
            view_of<const float>(q),
            view_of<const float>(k),
            view_of<const float>(v),
            view_of<const float>(beta),
            /*initial_state=*/{},
            view_of<float>(results.o),
            view_of<float>(results.final_state)};
  }
  /// The larger of the two differences, once both have run.
  double difference() const {
    return std::max(compare(gated.o, neighbour.o).error, compare(gated.final_state, neighbour.final_state).error);
  }
};

double without_gates() {
  Case x;
  delta_rule::make_orthonormal(x.k);  // of length 1; and now of some cosine with each other
  for (float& element : x.k.elements<float>()) element = 0.8f * element + 0.6f / std::sqrt(float(Dk));
  std::ranges::transform(drawn_rows("beta", {B, H, L, 1}).elements<float>(), x.beta.elements<float>().begin(),
                         [](float r) { return 1 / (1 + std::exp(r)); });
  std::ranges::fill(x.g.elements<float>(), 0.0f);
  recurrent({x.arguments(x.gated), view_of<const float>(x.g)});
  delta_rule::ut_transform(x.arguments(x.neighbour));
  return x.difference();
}

double with_nothing_to_replace() {
  Case x;
  delta_rule::make_orthonormal(x.k);
  std::ranges::fill(x.beta.elements<float>(), 1.0f);
  std::ranges::transform(drawn_rows("g", {B, H, L, 1}).elements<float>(), x.g.elements<float>().begin(),
                         [](float r) { return -std::exp(r); });
  const delta_rule::FloatArguments a = x.arguments(x.neighbour);
  recurrent({x.arguments(x.gated), view_of<const float>(x.g)});
  simple_gla::chunkwise({B, H, L, Dk, Dv, C, x.scale, a.q, a.k, a.v, view_of<const float>(x.g), /*initial_state=*/{},
                         a.o, a.final_state});
  return x.difference();
}

}  // namespace

Demonstration matches_neighbours() {
  constexpr double kTolerance = 1e-5;
  const double replaced = without_gates(), faded = with_nothing_to_replace();
  return {.text = fmt::format("gated_delta_rule's recurrent, L = {}, Dk = {}, Dv = {}, of at most {:.0e}:\n"
                              "with g = 0 it differs by {:.1e} from delta_rule's ut_transform, with orthonormal keys "
                              "and beta = 1 by {:.1e} from chapter 04's simple_gla\n",
                              L, Dk, Dv, kTolerance, replaced, faded),
          .passed = replaced <= kTolerance && faded <= kTolerance};
}

}  // namespace tutorial::gated_delta_rule
