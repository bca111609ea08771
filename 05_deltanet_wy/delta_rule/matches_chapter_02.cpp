#include "05_deltanet_wy/delta_rule/matches_chapter_02.hpp"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <cmath>

#include "02_chunkwise/linear_attention.hpp"
#include "05_deltanet_wy/delta_rule.hpp"
#include "common/compare.hpp"
#include "common/random.hpp"

namespace tutorial::delta_rule {
namespace {

constexpr int B = 1, H = 2, L = 80, Dk = 96, Dv = 40, C = 32;

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

/// Turns each head's L keys into orthonormal ones that span the same space.
void make_orthonormal(Tensor& k) {
  using Rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  for (int h = 0; h < H; ++h) {
    Eigen::Map<Rows> K(view<float>(k).row(0, h, 0), L, Dk);
    const Eigen::HouseholderQR<Eigen::MatrixXd> factors(K.cast<double>().transpose());
    const Eigen::MatrixXd basis = factors.householderQ() * Eigen::MatrixXd::Identity(Dk, L);
    K = basis.transpose().cast<float>();
  }
}

/// What an operator computes.
struct Results {
  Tensor o{Dtype::fp32, {B, H, L, Dv}}, final_state{Dtype::fp32, {B, H, Dk, Dv}};
};

}  // namespace

Demonstration matches_chapter_02() {
  const Tensor q = drawn("q", L, Dk), v = drawn("v", L, Dv);
  Tensor k = drawn("k", L, Dk), beta(Dtype::fp32, {B, H, L, 1});
  make_orthonormal(k);
  for (float& x : beta.elements<float>()) x = 1;
  const float scale = 1 / std::sqrt(float(Dk));

  Results replaced, added;
  recurrent({B, H, L, Dk, Dv, C, scale, /*normalize_keys=*/false, view<const float>(q), view<const float>(k),
             view<const float>(v), view<const float>(beta), /*initial_state=*/{}, view<float>(replaced.o),
             view<float>(replaced.final_state)});
  linear_attention::chunkwise({B, H, L, Dk, Dv, C, scale, view<const float>(q), view<const float>(k),
                               view<const float>(v), /*initial_state=*/{}, view<float>(added.o),
                               view<float>(added.final_state)});

  constexpr double kTolerance = 1e-5;
  const Comparison o = compare(replaced.o, added.o), final_state = compare(replaced.final_state, added.final_state);
  return {.text = fmt::format("delta_rule's recurrent and chapter 02's chunkwise, L = {}, Dk = {}, Dv = {}:\n"
                              "o differs by {:.1e}, final_state by {:.1e}, of at most {:.0e}\n",
                              L, Dk, Dv, o.error, final_state.error, kTolerance),
          .passed = o.within(kTolerance) && final_state.within(kTolerance)};
}

}  // namespace tutorial::delta_rule
