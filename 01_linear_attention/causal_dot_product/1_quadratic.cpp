/// @file
/// `quadratic`: attention as it is usually introduced, without the softmax.
///
/// Idea: o = ((Q K^T) . M) V, where M_ti = 1 for i <= t and 0 above the diagonal. The score matrix is written down
/// whole, masked, and multiplied by V. This is the definition, in double, and the reference for all stages that follow.
/// Grows out of: nothing
/// Equation: o_t = sum_{i<=t} (q_t . k_i) v_i
/// Shapes: Q, K [L, Dk]; scores [L, L]; V, O [L, Dv], for each of the B H heads in turn.
/// Thread mapping: OpenMP gives each thread 16 rows of the scores at a time, and then 16 rows of O.
/// Resources: 8 L^2 bytes, 134 MB at L = 4096.
/// Work: L (L + 1) (Dk + Dv) operations per head, as only i <= t is computed. (A multiply-add counts as two operations,
/// in all chapters.) At L = 4096 and Dk = Dv = 64 that is 32 times the 4 L Dk Dv of `recurrent`.
/// Bytes: Q, K, V and O once; the scores are written and read.
/// Bound by: the cores' arithmetic.
/// Requires: L <= 4096.
/// Weakness: memory and work grow with L^2.
/// Sources: arXiv 2006.16236, equation 3 with the similarity q . k and without the division, causal as in equation 8.

#include <cstddef>
#include <vector>

#include "01_linear_attention/causal_dot_product.hpp"

namespace tutorial::causal_dot_product {

void quadratic(const Arguments& a) {
  std::vector<double> scores(std::size_t(a.L) * std::size_t(a.L));  // [L, L], one head at a time
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) {
#pragma omp parallel for schedule(dynamic, 16)
      for (int t = 0; t < a.L; ++t) {
        double* score = &scores[std::size_t(t) * std::size_t(a.L)];
        const float* q = a.q.row(b, h, t);
        for (int i = 0; i <= t; ++i) {  // the mask: a query sees no later key
          const float* k = a.k.row(b, h, i);
          double dot = 0;
          for (int d = 0; d < a.Dk; ++d) dot += double(q[d]) * double(k[d]);
          score[i] = dot;
        }
      }
#pragma omp parallel for schedule(dynamic, 16)
      for (int t = 0; t < a.L; ++t) {
        const double* score = &scores[std::size_t(t) * std::size_t(a.L)];
        std::vector<double> o(std::size_t(a.Dv), 0.0);
        for (int i = 0; i <= t; ++i) {
          const float* v = a.v.row(b, h, i);
          for (int j = 0; j < a.Dv; ++j) o[std::size_t(j)] += score[i] * double(v[j]);
        }
        for (int j = 0; j < a.Dv; ++j) a.o.row(b, h, t)[j] = float(o[std::size_t(j)]);
      }
    }
  }
}

}  // namespace tutorial::causal_dot_product
