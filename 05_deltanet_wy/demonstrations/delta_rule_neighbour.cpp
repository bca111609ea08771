#include "05_deltanet_wy/demonstrations/delta_rule_neighbour.hpp"

#include <fmt/format.h>

#include <cmath>

#include "02_chunkwise/linear_attention.hpp"
#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/demonstrations/drawn_rows.hpp"
#include "common/compare.hpp"

namespace tutorial::delta_rule {
namespace {

constexpr int B = 1, H = 2, L = 80, Dk = 96, Dv = 40, C = 32;

/// What an operator computes.
struct Results {
  Tensor o{Dtype::fp32, {B, H, L, Dv}}, final_state{Dtype::fp32, {B, H, Dk, Dv}};
};

}  // namespace

Demonstration matches_chapter_02() {
  const Tensor q = drawn_rows("q", {B, H, L, Dk}), v = drawn_rows("v", {B, H, L, Dv});
  Tensor k = drawn_rows("k", {B, H, L, Dk}), beta(Dtype::fp32, {B, H, L, 1});
  make_orthonormal(k);
  for (float& x : beta.elements<float>()) x = 1;
  const float scale = 1 / std::sqrt(float(Dk));

  Results replaced, added;
  recurrent({B, H, L, Dk, Dv, C, scale, /*normalize_keys=*/false, view_of<const float>(q), view_of<const float>(k),
             view_of<const float>(v), view_of<const float>(beta), /*initial_state=*/{}, view_of<float>(replaced.o),
             view_of<float>(replaced.final_state)});
  linear_attention::chunkwise({B, H, L, Dk, Dv, C, scale, view_of<const float>(q), view_of<const float>(k),
                               view_of<const float>(v), /*initial_state=*/{}, view_of<float>(added.o),
                               view_of<float>(added.final_state)});

  constexpr double kTolerance = 1e-5;
  const Comparison o = compare(replaced.o, added.o), final_state = compare(replaced.final_state, added.final_state);
  return {.text = fmt::format("delta_rule's recurrent and chapter 02's chunkwise, L = {}, Dk = {}, Dv = {}:\n"
                              "o differs by {:.1e}, final_state by {:.1e}, of at most {:.0e}\n",
                              L, Dk, Dv, o.error, final_state.error, kTolerance),
          .passed = o.within(kTolerance) && final_state.within(kTolerance)};
}

}  // namespace tutorial::delta_rule
