/// @file
/// Stage 2, `recurrent`: the same sum in another order, and L^2 is gone.
///
/// Idea: q_t (k_i^T v_i) = (q_t . k_i) v_i, so o_t = q_t S_t with the state S_t = sum_{i<=t} k_i^T v_i, a matrix that
/// every position reads and the next one adds to: an RNN whose hidden state is a matrix.
/// Mends: the L^2 scores of stage 1. Same: the result, up to the order in which it is summed.
///
///   S_t = S_{t-1} + k_t^T v_t        S [Dk, Dv], S_0 = 0
///   o_t = q_t S_t
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; S [Dk, Dv], one head after the other.
/// Work: 2 Dk Dv multiply-adds a position, independent of t. Bytes: q, k, v and o once; S, 4 Dk Dv bytes, stays in the
/// cache. The two lines share one loop over the rows d of S: a row is updated and read while it is in registers. The
/// inner loop runs along Dv, where S, v and o are packed: the compiler turns it into full-width vector instructions.
/// With the loops the other way round every step would stride by Dv. Limit: one core's arithmetic. Weakness: time steps
/// must follow one another, heads need not; stage 3 uses that. Source: arXiv 2006.16236, section 3.4, equations 16 to
/// 20 (without feature map and normaliser).

#include <cstddef>
#include <vector>

#include "01_linear_attention/linear_attention.hpp"

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

void recurrent_double(const Arguments& a) {  // a reference that nobody times: it may use all cores
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) recurrence<double>(a, b, h);
  }
}

}  // namespace tutorial::causal_dot_product
