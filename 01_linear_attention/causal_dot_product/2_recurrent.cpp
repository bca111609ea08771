/// @file
/// `recurrent`: the same sum in another order, which removes the L^2.
///
/// Idea: q_t (k_i^T v_i) = (q_t . k_i) v_i, so o_t = q_t S_t with the state S_t = sum_{i<=t} k_i^T v_i. Every position
/// reads this matrix, and the next one adds to it: an RNN whose hidden state is a matrix.
/// Grows out of: 1_quadratic.cpp
/// Improves on: `quadratic` computes L^2 scores.
/// Unchanged: the result, up to the order in which it is summed.
/// Equation: S_t = S_{t-1} + k_t^T v_t and o_t = q_t S_t, with S_0 = 0
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; S [Dk, Dv], one head after the other.
/// Thread mapping: one thread. The two lines of the equation share one loop over the rows S[d, :]: each row is updated
/// and read while it is in registers. The inner loop runs along Dv, where S, v and o are packed, and the compiler turns
/// it into full-width vector instructions. With the loops the other way round every step would stride by Dv.
/// Resources: S, 4 Dk Dv bytes, which stays in the cache.
/// Work: 4 Dk Dv operations per head and position, however large t is.
/// Bytes: q, k, v and o once.
/// Bound by: one core's arithmetic.
/// Weakness: only one core works. Positions must follow one another, but heads need not.
/// Sources: arXiv 2006.16236, section 3.4, equations 16 to 20 (without feature map and normaliser).

#include <cstddef>
#include <vector>

#include "01_linear_attention/causal_dot_product.hpp"

namespace tutorial::causal_dot_product {
namespace {

/// The recurrence of one (batch, head); Real is the type of S and of the sums.
template <class Real>
void recurrence(const Arguments& a, int b, int h) {
  const auto Dv = std::size_t(a.Dv);
  std::vector<Real> S(std::size_t(a.Dk) * Dv), v(Dv), o(Dv);
  for (int t = 0; t < a.L; ++t) {
    const float* q_t = a.q.row(b, h, t);
    const float* k_t = a.k.row(b, h, t);
    v.assign(a.v.row(b, h, t), a.v.row(b, h, t) + Dv);
    o.assign(Dv, Real(0));
    for (int d = 0; d < a.Dk; ++d) {
      const Real q = q_t[d];
      const Real k = k_t[d];
      Real* row = &S[std::size_t(d) * Dv];
      for (std::size_t j = 0; j < Dv; ++j) {
        row[j] += k * v[j];
        o[j] += q * row[j];
      }
    }
    for (std::size_t j = 0; j < Dv; ++j) a.o.row(b, h, t)[j] = float(o[j]);
  }
}

}  // namespace

void recurrent(const Arguments& a) {
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) recurrence<float>(a, b, h);
  }
}

void recurrent_double(const Arguments& a) {  // a reference that is not timed: it may use all cores
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) recurrence<double>(a, b, h);
  }
}

}  // namespace tutorial::causal_dot_product
