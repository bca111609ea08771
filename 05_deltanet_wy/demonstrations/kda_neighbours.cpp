#include "05_deltanet_wy/demonstrations/kda_neighbours.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "03_gla/gla.hpp"
#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/demonstrations/drawn_rows.hpp"
#include "05_deltanet_wy/kda.hpp"
#include "common/compare.hpp"

namespace tutorial::kda {
namespace {

using delta_rule::drawn_rows, delta_rule::view_of;

constexpr int B = 1, H = 2, L = 80, Dk = 96, Dv = 40, C = 32;
constexpr double kTolerance = 1e-5;

Tensor filled(std::int64_t rows, std::int64_t columns, float value) {
  Tensor tensor(Dtype::fp32, {B, H, rows, columns});
  for (float& x : tensor.elements<float>()) x = value;
  return tensor;
}

/// Divides each key by its length.
void normalize(Tensor& k) {
  const auto elements = k.elements<float>();
  for (std::size_t row = 0; row < elements.size(); row += Dk) {
    double squares = 0;
    for (const float x : elements.subspan(row, Dk)) squares += double(x) * double(x);
    for (float& x : elements.subspan(row, Dk)) x = float(double(x) / std::sqrt(squares));
  }
}

/// Key t of each head has a single 1, in column 37 t mod 96: all L columns differ.
Tensor unit_vectors() {
  Tensor k = filled(L, Dk, 0);
  for (int h = 0; h < H; ++h) {
    for (int t = 0; t < L; ++t) view_of<float>(k).row(0, h, t)[37 * t % Dk] = 1;
  }
  return k;
}

/// What an operator computes.
struct Results {
  Tensor o{Dtype::fp32, {B, H, L, Dv}}, final_state{Dtype::fp32, {B, H, Dk, Dv}};
};

/// The larger of the two outputs' errors; more than 1 where a comparison fails as such.
double difference(const Results& found, const Results& expected) {
  double worst = 0;
  for (const Comparison& c : {compare(found.o, expected.o), compare(found.final_state, expected.final_state)}) {
    worst = std::max(worst, c.within(1) ? c.error : 2);
  }
  return worst;
}

}  // namespace

Demonstration matches_delta_rule_and_gla() {
  const Tensor q = drawn_rows("q", {B, H, L, Dk}), v = drawn_rows("v", {B, H, L, Dv});
  const float scale = 1 / std::sqrt(float(Dk));
  const auto run = [&](const Tensor& k, const Tensor& g, const Tensor& beta) {
    Results found;
    recurrent({B, H, L, Dk, Dv, C, scale, /*normalize_keys=*/false, view_of<const float>(q), view_of<const float>(k),
               view_of<const float>(v), view_of<const float>(g), view_of<const float>(beta), /*initial_state=*/{},
               view_of<float>(found.o), view_of<float>(found.final_state)});
    return found;
  };

  Tensor k = drawn_rows("k", {B, H, L, Dk}), beta = filled(L, 1, 0.75f), g = filled(L, Dk, 0);
  normalize(k);
  Results expected;
  delta_rule::ut_transform({B, H, L, Dk, Dv, C, scale, /*normalize_keys=*/false, view_of<const float>(q),
                            view_of<const float>(k), view_of<const float>(v), view_of<const float>(beta),
                            /*initial_state=*/{}, view_of<float>(expected.o), view_of<float>(expected.final_state)});
  const double of_delta_rule = difference(run(k, g, beta), expected);

  k = unit_vectors(), beta = filled(L, 1, 1), g = drawn_rows("g", {B, H, L, Dk});
  for (float& x : g.elements<float>()) x = -std::abs(x);
  gla::chunkwise({B, H, L, Dk, Dv, C, scale, view_of<const float>(q), view_of<const float>(k), view_of<const float>(v),
                  view_of<const float>(g), /*initial_state=*/{}, view_of<float>(expected.o),
                  view_of<float>(expected.final_state)});
  const double of_gla = difference(run(k, g, beta), expected);

  return {.text = fmt::format("kda's recurrent, L = {}, Dk = {}, Dv = {}:\n"
                              "g = 0: differs from delta_rule's ut_transform by {:.1e}, of at most {:.0e}\n"
                              "different unit vectors as keys, beta = 1: from chapter 03's chunkwise by {:.1e}\n",
                              L, Dk, Dv, of_delta_rule, kTolerance, of_gla),
          .passed = of_delta_rule <= kTolerance && of_gla <= kTolerance};
}

}  // namespace tutorial::kda
