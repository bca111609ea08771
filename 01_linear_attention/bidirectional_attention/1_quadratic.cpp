/// @file
/// `quadratic`: every query sees every key, as in an encoder or in cross-attention.
///
/// Idea: the sum of causal_attention without its upper bound.
/// Grows out of: 01_linear_attention/causal_attention/1_quadratic.cpp
/// Unchanged: weights, normaliser and key lengths.
/// Equation: o_t = sum_i w_ti v_i / (sum_i w_ti + eps) with w_ti = phi(q_t) . phi(k_i), i over all Lk keys
/// Shapes: q [B, H, L, Dk]; k [B, H, Lk, Dk]; v [B, H, Lk, Dv]; o [B, H, L, Dv]; L and Lk are independent.
/// Thread mapping: OpenMP gives each thread some queries of a head.
/// Resources: 8 Lk Dk bytes for phi_k.
/// Work: 2 L Lk (Dk + Dv) operations per head, in double.
/// Bytes: inputs and output once.
/// Bound by: the cores' arithmetic.
/// Requires: L Lk <= 4096 x 4096.
/// Weakness: the work grows with L Lk.
/// Sources: arXiv 2006.16236, equations 3 and 4.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "01_linear_attention/linear_attention.hpp"
#include "common/feature_map.hpp"

namespace tutorial::bidirectional_attention {

void quadratic(const Arguments& a) {
  const auto Dk = std::size_t(a.Dk), Dv = std::size_t(a.Dv);
  for (int b = 0; b < a.B; ++b) {
    const int keys = std::min(a.Lk, a.key_lengths ? a.key_lengths[b] : a.Lk);
    for (int h = 0; h < a.H; ++h) {
      std::vector<double> phi_k(std::size_t(keys) * Dk);
      for (std::size_t i = 0; i < std::size_t(keys); ++i) {
        for (std::size_t d = 0; d < Dk; ++d) phi_k[i * Dk + d] = phi(double(a.k.row(b, h, std::int64_t(i))[d]));
      }
#pragma omp parallel for schedule(static)
      for (int t = 0; t < a.L; ++t) {
        std::vector<double> phi_q(Dk), o(Dv, 0.0);
        for (std::size_t d = 0; d < Dk; ++d) phi_q[d] = phi(double(a.q.row(b, h, t)[d]));
        double normaliser = a.eps;
        for (int i = 0; i < keys; ++i) {
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
  return std::int64_t(a.L) * a.Lk > 4096 * 4096 ? "L Lk > 4096 x 4096: O(L Lk) time" : "";
}

}  // namespace tutorial::bidirectional_attention
