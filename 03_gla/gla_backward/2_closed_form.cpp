/// @file
/// `closed_form` of --backward: the gradient of the gates from q, dq, k and dk, with no state kept.
///
/// Idea: a gate multiplies the state where q and k meet it. What a row of S contributes to the loss after position t is
/// S_t . dS_t, summed over the row, and there are two ways to write it: as what arrives, k_t dk_t + dg_t, and as what
/// leaves, q_t dq_t + dg_{t+1}. So dg_t = dg_{t+1} + q_t dq_t - k_t dk_t, a running sum from the end. Both products
/// contain the pair of position t with itself, q_t k_t (do_t . v_t), which passes no gate. It is left out of both, so
/// that with closed gates a zero stays a zero. The same holds for what the final state contains of the last key.
/// Grows out of: 1_recurrent.cpp
/// Improves on: `recurrent` keeps L + 1 states.
/// Unchanged: two passes, the first forwards with S, the second backwards with dS.
/// Equation: with ' for dq and dk without the pair of a position with itself
///
///     dq'_t = scale do_t (diag(exp(g_t)) S_{t-1})^T              dq_t = dq'_t + scale (do_t . v_t) k_t
///     dk'_t = v_t (diag(exp(g_{t+1})) dS_{t+1})^T                dk_t = dk'_t + scale (do_t . v_t) q_t
///     dg_t  = dg_{t+1} + q_t . dq'_t - k_t . dk'_t               . is element by element
///     dg_L  = q_L . dq'_L + the sum of each row of diag(exp(g_L)) S_{L-1} . dfinal_state
///
/// Shapes: as in `recurrent`; S and dS [Dk, Dv]. The first pass leaves q_t . dq'_t in the place of dg_t. The stage
/// computes in fp32; in double the same code is the reference for L > 4096.
/// Thread mapping: OpenMP gives each thread one head at a time.
/// Resources: two states of Dk Dv numbers per thread, S and dS, and one row of dg.
/// Work: per position 2 Dk Dv multiply-adds and Dk Dv multiplications in the first pass, 3 Dk Dv and Dk Dv in the
/// second.
/// Bytes: k, v, g and do twice, q twice, each gradient once, and dg twice more.
/// Bound by: the cores' arithmetic, one position after the other.
/// Requires: nothing.
/// Weakness: the steps are sequential, and none is a matrix product. `chunkwise` makes them products. dg is a small
/// difference where it follows large numbers: README.md measures how many digits that costs.
/// Sources: arXiv 2312.06635, appendix, for the closed form; leaving out the pair of a position with itself is ours.

#include <cmath>
#include <cstddef>
#include <vector>

#include "03_gla/gla_backward.hpp"

namespace tutorial::gla {
namespace {

/// The state [Dk, Dv] that a walk starts from: zeros if none is given.
template <class Real>
std::vector<Real> start_of(const FloatBackwardArguments& a, const View<const float>& start, int b, int h) {
  std::vector<Real> S(std::size_t(a.Dk) * std::size_t(a.Dv));
  for (int d = 0; d < a.Dk && start.data; ++d) {
    for (int j = 0; j < a.Dv; ++j) S[std::size_t(d) * std::size_t(a.Dv) + std::size_t(j)] = start.row(b, h, d)[j];
  }
  return S;
}

/// scale do_t . v_t.
template <class Real>
Real own_score(const FloatBackwardArguments& a, int b, int h, int t) {
  Real sum = 0;
  for (int j = 0; j < a.Dv; ++j) sum += Real(a.d_o.row(b, h, t)[j]) * a.v.row(b, h, t)[j];
  return Real(a.scale) * sum;
}

/// Both passes of one head.
template <class Real>
void walk(const FloatBackwardArguments& a, int b, int h) {
  const auto Dk = std::size_t(a.Dk), Dv = std::size_t(a.Dv);
  const Real scale = a.scale;
  std::vector<Real> S = start_of<Real>(a, a.initial_state, b, h), dS = start_of<Real>(a, a.dfinal_state, b, h);
  std::vector<Real> dg(Dk), dv(Dv);
  for (int t = 0; t < a.L; ++t) {
    const float *q = a.q.row(b, h, t), *k = a.k.row(b, h, t), *v = a.v.row(b, h, t), *d_o = a.d_o.row(b, h, t);
    const Real own = own_score<Real>(a, b, h, t);
    for (std::size_t d = 0; d < Dk; ++d) {
      const Real gate = std::exp(Real(a.g.row(b, h, t)[d]));
      Real sum = 0;
      for (std::size_t j = 0; j < Dv; ++j) {
        S[d * Dv + j] *= gate;
        sum += S[d * Dv + j] * d_o[j];
        if (t == a.L - 1) dg[d] += S[d * Dv + j] * dS[d * Dv + j];
        S[d * Dv + j] += Real(k[d]) * v[j];
      }
      a.dq.row(b, h, t)[d] = float(scale * sum + own * k[d]);
      a.dg.row(b, h, t)[d] = float(q[d] * scale * sum);
    }
  }

  for (int t = a.L - 1; t >= 0; --t) {
    const float *q = a.q.row(b, h, t), *k = a.k.row(b, h, t), *v = a.v.row(b, h, t), *d_o = a.d_o.row(b, h, t);
    const Real own = own_score<Real>(a, b, h, t);
    dv.assign(Dv, 0);
    for (std::size_t d = 0; d < Dk; ++d) {
      const Real gate = std::exp(Real(a.g.row(b, h, t)[d]));
      Real sum = 0;
      for (std::size_t j = 0; j < Dv; ++j) {
        sum += dS[d * Dv + j] * v[j];
        dS[d * Dv + j] += scale * q[d] * d_o[j];
        dv[j] += dS[d * Dv + j] * k[d];
        dS[d * Dv + j] *= gate;
      }
      dg[d] += a.dg.row(b, h, t)[d] - (t < a.L - 1 ? k[d] * sum : 0);
      a.dk.row(b, h, t)[d] = float(sum + own * q[d]);
      a.dg.row(b, h, t)[d] = float(dg[d]);
    }
    for (std::size_t j = 0; j < Dv; ++j) a.dv.row(b, h, t)[j] = float(dv[j]);
  }
  for (std::size_t d = 0; d < Dk && a.dinitial_state.data; ++d) {
    for (std::size_t j = 0; j < Dv; ++j) a.dinitial_state.row(b, h, std::int64_t(d))[j] = float(dS[d * Dv + j]);
  }
}

template <class Real>
void walk_all(const FloatBackwardArguments& a) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) walk<Real>(a, b, h);
  }
}

}  // namespace

void closed_form_backward(const FloatBackwardArguments& a) {
  walk_all<float>(a);
}

void closed_form_double_backward(const FloatBackwardArguments& a) {
  walk_all<double>(a);
}

}  // namespace tutorial::gla
