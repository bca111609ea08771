/// @file
/// `quadratic`: a feature map replaces the softmax.
///
/// Idea: softmax attention weighs a value with exp(q_t . k_i), normalised over i. Any positive weight can take its
/// place. The weight phi(q_t) . phi(k_i) factors into a function of q_t and one of k_i, which all later stages rely on.
/// This stage does not: it computes every weight, in double.
/// Grows out of: 01_linear_attention/causal_dot_product/1_quadratic.cpp
/// Improves on: weights of `causal_dot_product` may be negative, and do not add up to 1.
/// Unchanged: all pairs i <= t.
/// Equation: o_t = sum_{i<=t} w_ti v_i / (sum_{i<=t} w_ti + eps) with w_ti = phi(q_t) . phi(k_i)
/// Shapes: q [B, H, L, Dk]; k [B, H, Lk, Dk]; v [B, H, Lk, Dv]; o [B, H, L, Dv]; phi_k [keys, Dk], one head at a time.
/// Thread mapping: OpenMP gives each thread 16 queries of a head at a time.
/// Resources: 8 Lk Dk bytes for phi_k.
/// Work: L (L + 1) (Dk + Dv) operations per head.
/// Bytes: inputs and output once.
/// Bound by: the cores' arithmetic.
/// Requires: L <= 4096. A batch entry without keys gives 0 / eps = 0.
/// Weakness: the work grows with L^2, because phi(q_t) stays inside the sum.
/// Sources: arXiv 2006.16236, equations 3, 4 and 8.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "01_linear_attention/linear_attention.hpp"
#include "common/feature_map.hpp"

namespace tutorial::causal_attention {

void quadratic(const Arguments& a) {
  const auto Dk = std::size_t(a.Dk), Dv = std::size_t(a.Dv);
  for (int b = 0; b < a.B; ++b) {
    const int keys = std::min(a.Lk, a.key_lengths ? a.key_lengths[b] : a.Lk);  // phi(k_i) = 0 from here on
    for (int h = 0; h < a.H; ++h) {
      std::vector<double> phi_k(std::size_t(keys) * Dk);
      for (std::size_t i = 0; i < std::size_t(keys); ++i) {
        for (std::size_t d = 0; d < Dk; ++d) phi_k[i * Dk + d] = phi(double(a.k.row(b, h, std::int64_t(i))[d]));
      }
#pragma omp parallel for schedule(dynamic, 16)
      for (int t = 0; t < a.L; ++t) {
        std::vector<double> phi_q(Dk), o(Dv, 0.0);
        for (std::size_t d = 0; d < Dk; ++d) phi_q[d] = phi(double(a.q.row(b, h, t)[d]));
        double normaliser = a.eps;
        for (int i = 0; i < std::min(t + 1, keys); ++i) {
          double w = 0;
          for (std::size_t d = 0; d < Dk; ++d) w += phi_q[d] * phi_k[std::size_t(i) * Dk + d];
          normaliser += w;
          for (std::size_t j = 0; j < Dv; ++j) o[j] += w * double(a.v.row(b, h, i)[j]);
        }
        for (std::size_t j = 0; j < Dv; ++j) a.o.row(b, h, t)[j] = float(o[j] / normaliser);
      }
    }
  }
}

std::string quadratic_unsupported(const Arguments& a) {
  return a.L > 4096 ? "L > 4096: O(L^2) time" : "";
}

}  // namespace tutorial::causal_attention
