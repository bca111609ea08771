/// @file
/// `recurrent`: two states, S for the numerator and z for the normaliser.
///
/// Idea: a feature map replaces the softmax. Softmax attention weighs a value with exp(q_t . k_i), normalised over i. Any
/// positive weight can take its place, and phi(q_t) . phi(k_i) factors into a function of q_t and one of k_i. So phi(q_t)
/// can be taken out of both sums. The sums that remain grow by one term per position.
/// Grows out of: 01_linear_attention/causal_dot_product/2_recurrent.cpp
/// Improves on: weights of `causal_dot_product` may be negative, and do not add up to 1.
/// Unchanged: the loops of `causal_dot_product`.
/// Equation:
///
///   S_t = S_{t-1} + phi(k_t)^T v_t       S [Dk, Dv]
///   z_t = z_{t-1} + phi(k_t)             z [Dk]
///   o_t = phi(q_t) S_t / (phi(q_t) . z_t + eps)
///
/// Shapes: q [B, H, L, Dk]; k [B, H, Lk, Dk]; v [B, H, Lk, Dv]; o [B, H, L, Dv]; S and z, one head after the other.
/// Thread mapping: one thread.
/// Resources: S and z, 4 Dk (Dv + 1) bytes, which stay in the cache.
/// Work: 4 Dk (Dv + 1) operations and 2 Dk exponentials per head and position.
/// Bytes: inputs and output once.
/// Bound by: one core's arithmetic.
/// Weakness: it uses one core.
/// Sources: arXiv 2006.16236, equations 16 to 20.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "01_linear_attention/attention.hpp"
#include "common/feature_map.hpp"

namespace tutorial::causal_attention {
namespace {

/// The recurrence of one (batch, head); Real is the type of the states and of the sums.
template <class Real>
void recurrence(const Arguments& a, int b, int h) {
  const auto Dv = std::size_t(a.Dv);
  const int keys = std::min(a.Lk, a.key_lengths ? a.key_lengths[b] : a.Lk);
  std::vector<Real> S(std::size_t(a.Dk) * Dv), z(std::size_t(a.Dk)), v(Dv), o(Dv);
  for (int t = 0; t < a.L; ++t) {
    const bool has_key = t < keys;  // else phi(k_t) = 0, and the states stay as they are
    if (has_key) v.assign(a.v.row(b, h, t), a.v.row(b, h, t) + Dv);
    o.assign(Dv, Real(0));
    Real normaliser = Real(a.eps);
    for (int d = 0; d < a.Dk; ++d) {
      const Real q = phi(Real(a.q.row(b, h, t)[d]));
      const Real k = has_key ? phi(Real(a.k.row(b, h, t)[d])) : Real(0);
      Real* row = &S[std::size_t(d) * Dv];
      z[std::size_t(d)] += k;
      normaliser += q * z[std::size_t(d)];
      for (std::size_t j = 0; j < Dv; ++j) {
        row[j] += k * v[j];
        o[j] += q * row[j];
      }
    }
    for (std::size_t j = 0; j < Dv; ++j) a.o.row(b, h, t)[j] = float(o[j] / normaliser);
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

}  // namespace tutorial::causal_attention
