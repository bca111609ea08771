/// @file
/// Both attentions in double by their definition, weight by weight: the references. Softmax attention weighs a value with
/// exp(q_t . k_i), normalised over i. Any positive weight can take its place. The weight phi(q_t) . phi(k_i) factors
/// into a function of q_t and one of k_i, which all stages rely on. The references do not.
///
///   o_t = sum_i w_ti v_i / (sum_i w_ti + eps) with w_ti = phi(q_t) . phi(k_i)
///
/// where i runs to t in causal_attention, and over all keys in bidirectional_attention.
/// Source: arXiv 2006.16236, equations 3, 4 and 8.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "01_linear_attention/attention.hpp"
#include "common/feature_map.hpp"

namespace tutorial {
namespace {

/// Every query with the keys that it sees: all of them, or if is_causal those up to its own position.
void attend(const AttentionArguments& a, bool is_causal) {
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
        for (int i = 0; i < (is_causal ? std::min(t + 1, keys) : keys); ++i) {
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

}  // namespace

void causal_attention::quadratic_double(const Arguments& a) {
  attend(a, true);
}

void bidirectional_attention::quadratic_double(const Arguments& a) {
  attend(a, false);
}

}  // namespace tutorial
