#include "03_gla/gla/matches_chapter_02.hpp"

#include <fmt/format.h>

#include <cmath>

#include "02_chunkwise/linear_attention.hpp"
#include "03_gla/gla.hpp"
#include "common/compare.hpp"
#include "common/random.hpp"

namespace tutorial::gla {
namespace {

constexpr int B = 1, H = 2, L = 200, Dk = 48, Dv = 40, C = 64;

Tensor drawn(const char* name, std::int64_t rows, std::int64_t columns) {
  Tensor tensor(Dtype::fp32, {B, H, rows, columns});
  const Random random(2, name);
  std::uint64_t i = 0;
  for (float& x : tensor.elements<float>()) x = float(random.normal(i++));
  return tensor;
}

template <class T, class SomeTensor>
View<T> view(SomeTensor& tensor) {
  return packed<T>(tensor.template elements<float>().data(), H, tensor.shape()[2], tensor.shape()[3]);
}

/// What an operator computes.
struct Results {
  Tensor o{Dtype::fp32, {B, H, L, Dv}}, final_state{Dtype::fp32, {B, H, Dk, Dv}};
};

}  // namespace

Demonstration matches_chapter_02() {
  const Tensor q = drawn("q", L, Dk), k = drawn("k", L, Dk), v = drawn("v", L, Dv), S_0 = drawn("S_0", Dk, Dv);
  const float scale = 1 / std::sqrt(float(Dk));
  Tensor g(Dtype::fp32, {B, H, L, Dk});
  g.fill_bytes(0);

  Results gated, plain;
  recurrent({B, H, L, Dk, Dv, C, scale, view<const float>(q), view<const float>(k), view<const float>(v),
             view<const float>(g), view<const float>(S_0), view<float>(gated.o), view<float>(gated.final_state)});
  linear_attention::chunkwise({B, H, L, Dk, Dv, C, scale, view<const float>(q), view<const float>(k),
                               view<const float>(v), view<const float>(S_0), view<float>(plain.o),
                               view<float>(plain.final_state)});

  constexpr double kTolerance = 1e-5;
  const Comparison o = compare(gated.o, plain.o), final_state = compare(gated.final_state, plain.final_state);
  return {.text = fmt::format("gla's recurrent on g = 0 and chapter 02's chunkwise, L = {}, Dk = {}, Dv = {}:\n"
                              "o differs by {:.1e}, final_state by {:.1e}, of at most {:.0e}\n",
                              L, Dk, Dv, o.error, final_state.error, kTolerance),
          .passed = o.within(kTolerance) && final_state.within(kTolerance)};
}

}  // namespace tutorial::gla
