/// @file
/// `recurrent` of --backward: every state is kept, because the gradient of a gate needs the state that it multiplied.
///
/// Idea: exp(g_td) multiplies row d of S_{t-1}, so its gradient is the product of that row with row d of dS_t. The
/// states come from the front, their gradients from the end. A first pass stores S_0 to S_L. A second pass walks
/// backwards with dS and finds the state that it needs at each position.
/// Grows out of: nothing
/// Equation:
///
///     S_t = diag(exp(g_t)) S_{t-1} + k_t^T v_t                      t = 1 ... L, all of them kept
///     dS_t = scale q_t^T do_t + diag(exp(g_{t+1})) dS_{t+1}      t = L ... 1; at L the last term is dfinal_state
///     dq_t = scale do_t S_t^T,   dk_t = v_t dS_t^T,   dv_t = k_t dS_t
///     dg_td = exp(g_td) sum_j S_{t-1,dj} dS_t,dj
///     dinitial_state = diag(exp(g_1)) dS_1
///
/// Shapes: q, k, g, dq, dk, dg [B, H, L, Dk]; v, do, dv [B, H, L, Dv]; states and their gradients [B, H, Dk, Dv]; fp32
/// in host memory. S [L + 1, Dk, Dv] and dS [Dk, Dv] are in double, as are all sums: every stage is checked against
/// this one.
/// Thread mapping: OpenMP gives each thread one head at a time.
/// Resources: 8 (L + 2) Dk Dv bytes per thread.
/// Work: per position 2 Dk Dv multiply-adds in the first pass, 6 Dk Dv in the second.
/// Bytes: k, v and g twice, the rest once; each state is written once and read twice.
/// Bound by: memory, for the states.
/// Requires: nothing.
/// Weakness: the states take Dv times the bytes of q, in double 2 Dv times. `closed_form` keeps none.
/// Sources: the chain rule; arXiv 2312.06635, section 4.1, for the recurrence.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "03_gla/gla_backward.hpp"
#include "common/parallel.hpp"

namespace tutorial::gla {
namespace {

/// A state [Dk, Dv] in double: zeros if none is given.
void copy_state(const FloatBackwardArguments& a, const View<const float>& from, int b, int h, double* to) {
  for (int d = 0; d < a.Dk; ++d, to += a.Dv) {
    from.data ? std::copy_n(from.row(b, h, d), a.Dv, to) : std::fill_n(to, a.Dv, 0.0);
  }
}

/// Both passes of one head.
/// @param S [L + 1, Dk, Dv], overwritten
void walk(const FloatBackwardArguments& a, int b, int h, std::vector<double>& S) {
  const auto Dk = std::size_t(a.Dk), Dv = std::size_t(a.Dv);
  const double scale = a.scale;
  copy_state(a, a.initial_state, b, h, S.data());
  for (int t = 0; t < a.L; ++t) {
    const float *k = a.k.row(b, h, t), *v = a.v.row(b, h, t), *g = a.g.row(b, h, t);
    const double* before = &S[std::size_t(t) * Dk * Dv];
    double* after = &S[std::size_t(t + 1) * Dk * Dv];
    for (std::size_t d = 0; d < Dk; ++d) {
      const double gate = std::exp(double(g[d])), key = k[d];
      for (std::size_t j = 0; j < Dv; ++j) after[d * Dv + j] = gate * before[d * Dv + j] + key * v[j];
    }
  }

  std::vector<double> dS(Dk * Dv), dv(Dv);  // dS: of the state after position t, through what comes later
  copy_state(a, a.dfinal_state, b, h, dS.data());
  for (int t = a.L - 1; t >= 0; --t) {
    const float *q = a.q.row(b, h, t), *k = a.k.row(b, h, t), *g = a.g.row(b, h, t);
    const float *v = a.v.row(b, h, t), *d_o = a.d_o.row(b, h, t);
    const double* before = &S[std::size_t(t) * Dk * Dv];
    const double* after = &S[std::size_t(t + 1) * Dk * Dv];
    dv.assign(Dv, 0);
    for (std::size_t d = 0; d < Dk; ++d) {
      const double gate = std::exp(double(g[d]));
      double dq = 0, dk = 0, dgate = 0;
      for (std::size_t j = 0; j < Dv; ++j) {
        double& x = dS[d * Dv + j];
        x += scale * q[d] * d_o[j];
        dq += after[d * Dv + j] * d_o[j];
        dk += x * v[j];
        dv[j] += x * k[d];
        dgate += x * before[d * Dv + j];
        x *= gate;
      }
      a.dq.row(b, h, t)[d] = float(scale * dq);
      a.dk.row(b, h, t)[d] = float(dk);
      a.dg.row(b, h, t)[d] = float(gate * dgate);
    }
    std::copy_n(dv.data(), Dv, a.dv.row(b, h, t));
  }
  for (int d = 0; d < a.Dk && a.dinitial_state.data; ++d) {
    std::copy_n(&dS[std::size_t(d) * Dv], Dv, a.dinitial_state.row(b, h, d));
  }
}

}  // namespace

void recurrent_backward(const FloatBackwardArguments& a) {
#pragma omp parallel num_threads(int(std::min <std::int64_t>(processor_count(), std::int64_t(a.B) * a.H)))
  {
    std::vector<double> S(std::size_t(a.L + 1) * std::size_t(a.Dk) * std::size_t(a.Dv));
#pragma omp for collapse(2) schedule(dynamic)
    for (int b = 0; b < a.B; ++b) {
      for (int h = 0; h < a.H; ++h) walk(a, b, h, S);
    }
  }
}

}  // namespace tutorial::gla
