/// @file
/// `recurrent`: two walks, and two numbers per position between them.
///
/// Idea: apart from the division by the normaliser, the layer is causal_dot_product with one more column: its values
/// are [v_i, 1] and its outputs [phi(q_t) S_t, phi(q_t) . z_t]. The division passes do_t on to both: do_t / c_t to the
/// first, -(do_t . o_t) / c_t to the second, where c_t is the denominator. With these in place of do_t, the walks are
/// those of causal_dot_product. The walk from the end needs c_t and do_t . o_t again, which only the walk from the
/// start can compute. So two numbers per position are kept.
/// Grows out of: 01_linear_attention/causal_attention/1_recurrent.cpp
/// Improves on: weight by weight (attention_gradients_reference.cpp), the gradients take 2 L^2 weights.
/// Unchanged: the loop of the operator, which becomes the walk from the start, and the walks of causal_dot_product's
/// gradients.
/// Equation: with dc_t = -(do_t . o_t) / c_t,
///
///   S_t = S_{t-1} + phi(k_t)^T v_t,  z_t = z_{t-1} + phi(k_t),  dphi(q_t) = (do_t / c_t) S_t^T + dc_t z_t
///   dS_t = dS_{t+1} + phi(q_t)^T (do_t / c_t),  dz_t = dz_{t+1} + dc_t phi(q_t),
///   dphi(k_t) = v_t dS_t^T + dz_t,  dv_t = phi(k_t) dS_t
///
/// Shapes: q, dq [B, H, L, Dk]; k, dk [B, H, Lk, Dk]; v, dv [B, H, Lk, Dv]; do [B, H, L, Dv]; S, dS
/// [Dk, Dv]; z, dz [Dk].
/// Thread mapping: one thread.
/// Resources: one state, 4 Dk (Dv + 1) bytes, and 8 L bytes for c_t and do_t . o_t.
/// Work: 12 Dk (Dv + 1) operations and 4 Dk exponentials per head and position; 2 of the 12 are for o_t.
/// Bytes: inputs twice, outputs once.
/// Bound by: one core's arithmetic.
/// Weakness: it uses one core.
/// Sources: the chain rule; arXiv 2006.16236, section 3.3.1, for the two directions.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "01_linear_attention/attention.hpp"
#include "common/feature_map.hpp"

namespace tutorial::causal_attention_backward {
namespace {

/// The two numbers of a position that the walk from the end needs for the division by the normaliser.
template <class Real>
struct Division {
  Real normaliser;  ///< c_t
  Real mean;        ///< do_t . o_t / c_t, which is -dc_t
};

/// The walk from the start: S, z and dq of one (batch, head). Real is the type of the states and of the sums.
template <class Real>
std::vector<Division<Real>> walk_from_start(const Arguments& a, int b, int h, int keys) {
  const auto Dv = std::size_t(a.Dv);
  std::vector<Division<Real>> divisions;
  std::vector<Real> S(std::size_t(a.Dk) * Dv), z(std::size_t(a.Dk)), o(Dv);
  for (int t = 0; t < a.L; ++t) {
    const float* q_t = a.q.row(b, h, t);
    const float* do_t = a.d_o.row(b, h, t);
    o.assign(Dv, Real(0));
    Real normaliser = Real(a.eps), mean = 0;
    for (int d = 0; d < a.Dk; ++d) {
      const Real q = phi(Real(q_t[d]));
      const Real k = t < keys ? phi(Real(a.k.row(b, h, t)[d])) : Real(0);
      Real* row = &S[std::size_t(d) * Dv];
      z[std::size_t(d)] += k;
      normaliser += q * z[std::size_t(d)];
      for (std::size_t j = 0; j < Dv; ++j) {
        if (t < keys) row[j] += k * Real(a.v.row(b, h, t)[j]);
        o[j] += q * row[j];
      }
    }
    for (std::size_t j = 0; j < Dv; ++j) mean += Real(do_t[j]) * o[j];
    mean /= normaliser * normaliser;
    divisions.push_back({normaliser, mean});
    for (int d = 0; d < a.Dk; ++d) {
      const Real* row = &S[std::size_t(d) * Dv];
      const Real slope = dphi(Real(q_t[d])), subtracted = mean * z[std::size_t(d)];
      Real dq = 0;
      for (std::size_t j = 0; j < Dv; ++j) dq += Real(do_t[j]) * row[j];
      a.dq.row(b, h, t)[d] = float(slope * (dq / normaliser - subtracted));
      if (a.dq_subtracted.data) a.dq_subtracted.row(b, h, t)[d] = float(slope * subtracted);
    }
  }
  return divisions;
}

/// The walk from the end: dS, dz, dk and dv.
template <class Real>
void walk_from_end(const Arguments& a, int b, int h, int keys, const std::vector<Division<Real>>& divisions) {
  const auto Dv = std::size_t(a.Dv);
  std::vector<Real> dS(std::size_t(a.Dk) * Dv), minus_dz(std::size_t(a.Dk)), numerator(Dv), dv(Dv);
  for (int t = std::max(a.L, a.Lk) - 1; t >= 0; --t) {
    const auto [normaliser, mean] = t < a.L ? divisions[std::size_t(t)] : Division<Real>{1, 0};
    for (std::size_t j = 0; j < Dv; ++j) numerator[j] = t < a.L ? Real(a.d_o.row(b, h, t)[j]) / normaliser : Real(0);
    dv.assign(Dv, Real(0));
    for (int d = 0; d < a.Dk; ++d) {
      const Real q = t < a.L ? phi(Real(a.q.row(b, h, t)[d])) : Real(0);
      const Real k = t < keys ? phi(Real(a.k.row(b, h, t)[d])) : Real(0);
      const Real slope = t < keys ? dphi(Real(a.k.row(b, h, t)[d])) : Real(0);
      Real* row = &dS[std::size_t(d) * Dv];
      Real dk = 0;
      for (std::size_t j = 0; j < Dv; ++j) {
        row[j] += q * numerator[j];
        if (t < keys) dk += Real(a.v.row(b, h, t)[j]) * row[j];
        dv[j] += k * row[j];
      }
      minus_dz[std::size_t(d)] += q * mean;
      if (t >= a.Lk) continue;
      a.dk.row(b, h, t)[d] = float(slope * (dk - minus_dz[std::size_t(d)]));
      if (a.dk_subtracted.data) a.dk_subtracted.row(b, h, t)[d] = float(slope * minus_dz[std::size_t(d)]);
    }
    for (std::size_t j = 0; t < a.Lk && j < Dv; ++j) a.dv.row(b, h, t)[j] = float(dv[j]);
  }
}

template <class Real>
void both_walks(const Arguments& a, int b, int h) {
  const int keys = std::min(a.Lk, a.key_lengths ? a.key_lengths[b] : a.Lk);
  walk_from_end<Real>(a, b, h, keys, walk_from_start<Real>(a, b, h, keys));
}

}  // namespace

void recurrent(const Arguments& a) {
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) both_walks<float>(a, b, h);
  }
}

void recurrent_double(const Arguments& a) {  // a reference that is not timed: it may use all cores
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) both_walks<double>(a, b, h);
  }
}

}  // namespace tutorial::causal_attention_backward
