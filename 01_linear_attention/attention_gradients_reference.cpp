/// @file
/// The gradients of both attentions in double, weight by weight: the references. o_t is the mean of the values with
/// weights w_ti. If a weight grows, o_t moves towards its value v_i: by (v_i - o_t) / c_t, where c_t is the normaliser.
/// So the gradient of a weight is do_t . (v_i - o_t) / c_t. The rest is the chain rule, and in the end the derivative of
/// the feature map: 1 above zero, exp(x) below. With w_ti = phi(q_t) . phi(k_i), c_t = sum_i w_ti + eps and dw_ti =
/// (do_t . v_i - do_t . o_t) / c_t,
///
///   dq_t = phi'(q_t) . sum_i dw_ti phi(k_i)      (. is element by element here)
///   dk_i = phi'(k_i) . sum_t dw_ti phi(q_t)
///   dv_i = sum_t w_ti / c_t do_t
///
/// over all pairs, and in causal_attention over those with i <= t. A key that does not count has the gradient 0.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "01_linear_attention/attention.hpp"
#include "common/feature_map.hpp"

namespace tutorial {
namespace {

/// phi of the first rows of a head: [rows, Dk].
std::vector<double> features(const View<const float>& x, int b, int h, int rows, std::size_t Dk) {
  std::vector<double> phi_x(std::size_t(rows) * Dk);
  for (std::size_t n = 0; n < phi_x.size(); ++n) phi_x[n] = phi(double(x.row(b, h, std::int64_t(n / Dk))[n % Dk]));
  return phi_x;
}

/// A row of a gradient: phi'(x) times the sum.
void store(float* row, const float* x, const std::vector<double>& sum) {
  for (std::size_t d = 0; d < sum.size(); ++d) row[d] = float(dphi(double(x[d])) * sum[d]);
}

/// The gradients where every query sees all keys, or if is_causal those up to its own position.
void backward(const AttentionBackwardArguments& a, bool is_causal) {
  const auto L = std::size_t(a.L), Dk = std::size_t(a.Dk), Dv = std::size_t(a.Dv);
  for (int b = 0; b < a.B; ++b) {
    const int keys = std::min({is_causal ? a.L : a.Lk, a.Lk, a.key_lengths ? a.key_lengths[b] : a.Lk});
    for (int h = 0; h < a.H; ++h) {
      const std::vector<double> phi_q = features(a.q, b, h, a.L, Dk), phi_k = features(a.k, b, h, keys, Dk);
      std::vector<double> w(L * std::size_t(keys)), dw(w.size());  // w / c_t
      std::vector<double> mean(L);  // do_t . o_t / c_t: the term of dw that does not depend on i
#pragma omp parallel for schedule(dynamic, 16)
      for (int t = 0; t < a.L; ++t) {
        const std::size_t row = std::size_t(t) * std::size_t(keys),
                          seen = std::size_t(is_causal ? std::min(t + 1, keys) : keys);
        const float* do_t = a.d_o.row(b, h, t);
        double normaliser = a.eps;
        for (std::size_t i = 0; i < seen; ++i) {
          for (std::size_t d = 0; d < Dk; ++d) w[row + i] += phi_q[std::size_t(t) * Dk + d] * phi_k[i * Dk + d];
          for (std::size_t j = 0; j < Dv; ++j) dw[row + i] += double(do_t[j]) * double(a.v.row(b, h, int(i))[j]);
          normaliser += w[row + i];
        }
        for (std::size_t i = 0; i < seen; ++i) mean[std::size_t(t)] += (w[row + i] /= normaliser) * dw[row + i];
        mean[std::size_t(t)] /= normaliser;
        std::vector<double> dq(Dk), subtracted(Dk);
        for (std::size_t i = 0; i < seen; ++i) {
          dw[row + i] = dw[row + i] / normaliser - mean[std::size_t(t)];
          for (std::size_t d = 0; d < Dk; ++d) {
            dq[d] += dw[row + i] * phi_k[i * Dk + d];
            subtracted[d] += mean[std::size_t(t)] * phi_k[i * Dk + d];
          }
        }
        store(a.dq.row(b, h, t), a.q.row(b, h, t), dq);
        if (a.dq_subtracted.data) store(a.dq_subtracted.row(b, h, t), a.q.row(b, h, t), subtracted);
      }
#pragma omp parallel for schedule(dynamic, 16)
      for (int i = 0; i < a.Lk; ++i) {
        std::vector<double> dk(Dk), subtracted(Dk), dv(Dv);
        for (std::size_t t = is_causal ? std::size_t(i) : 0; i < keys && t < L; ++t) {
          const std::size_t ti = t * std::size_t(keys) + std::size_t(i);
          for (std::size_t d = 0; d < Dk; ++d) {
            dk[d] += dw[ti] * phi_q[t * Dk + d];
            subtracted[d] += mean[t] * phi_q[t * Dk + d];
          }
          for (std::size_t j = 0; j < Dv; ++j) dv[j] += w[ti] * double(a.d_o.row(b, h, std::int64_t(t))[j]);
        }
        store(a.dk.row(b, h, i), a.k.row(b, h, i), dk);
        if (a.dk_subtracted.data) store(a.dk_subtracted.row(b, h, i), a.k.row(b, h, i), subtracted);
        for (std::size_t j = 0; j < Dv; ++j) a.dv.row(b, h, i)[j] = float(dv[j]);
      }
    }
  }
}

}  // namespace

void causal_attention_backward::quadratic_double(const Arguments& a) {
  backward(a, true);
}

void bidirectional_attention_backward::quadratic_double(const Arguments& a) {
  backward(a, false);
}

}  // namespace tutorial
