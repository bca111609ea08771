/// @file
/// The gradients in double by the chain rule, through the score matrix: the reference. o = w V with the masked scores w =
/// (Q K^T) . M. The adjoint of a matrix product is two matrix products: dV = w^T dO and dw = dO V^T. The mask lets no
/// gradient through above the diagonal. The remaining gradient passes through Q K^T to Q and K. With w_ti = q_t . k_i and
/// dw_ti = do_t . v_i for i <= t,
///
///   dq_t = sum_{i<=t} dw_ti k_i
///   dk_i = sum_{t>=i} dw_ti q_t
///   dv_i = sum_{t>=i} w_ti do_t
///
/// w and dw [L, L] of one head at a time take 16 L^2 bytes, 268 MB at L = 4096.
/// Sources: the chain rule; arXiv 2006.16236, section 3.3.1, has the same sums.

#include <cstddef>
#include <vector>

#include "01_linear_attention/causal_dot_product_backward.hpp"

namespace tutorial::causal_dot_product_backward {
namespace {

double dot(const float* x, const float* y, int width) {
  double sum = 0;
  for (int d = 0; d < width; ++d) sum += double(x[d]) * double(y[d]);
  return sum;
}

/// sum += weight row
void add(std::vector<double>& sum, double weight, const float* row) {
  for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += weight * double(row[d]);
}

void store(float* row, const std::vector<double>& sum) {
  for (std::size_t d = 0; d < sum.size(); ++d) row[d] = float(sum[d]);
}

}  // namespace

void quadratic_double(const Arguments& a) {
  const auto L = std::size_t(a.L), Dk = std::size_t(a.Dk), Dv = std::size_t(a.Dv);
  std::vector<double> w(L * L), dw(L * L);  // one head at a time
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) {
#pragma omp parallel for schedule(dynamic, 16)
      for (int t = 0; t < a.L; ++t) {
        std::vector<double> dq(Dk, 0.0);
        for (int i = 0; i <= t; ++i) {  // the mask
          const std::size_t ti = std::size_t(t) * L + std::size_t(i);
          w[ti] = dot(a.q.row(b, h, t), a.k.row(b, h, i), a.Dk);
          dw[ti] = dot(a.d_o.row(b, h, t), a.v.row(b, h, i), a.Dv);
          add(dq, dw[ti], a.k.row(b, h, i));
        }
        store(a.dq.row(b, h, t), dq);
      }
#pragma omp parallel for schedule(dynamic, 16)
      for (int i = 0; i < a.L; ++i) {
        std::vector<double> dk(Dk, 0.0), dv(Dv, 0.0);
        for (int t = i; t < a.L; ++t) {
          const std::size_t ti = std::size_t(t) * L + std::size_t(i);
          add(dk, dw[ti], a.q.row(b, h, t));
          add(dv, w[ti], a.d_o.row(b, h, t));
        }
        store(a.dk.row(b, h, i), dk);
        store(a.dv.row(b, h, i), dv);
      }
    }
  }
}

}  // namespace tutorial::causal_dot_product_backward
