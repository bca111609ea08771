/// @file
/// `recurrent` of --backward: every state is kept, because the gradient of a gate needs the state that it multiplied.
///
/// Idea: exp(g_td) multiplies row d of S_{t-1}, so its gradient is the product of that row with row d of dS_t. The
/// states come from the front, their gradients from the end. A first pass stores S_0 to S_L. A second pass walks
/// backwards with dS and finds the state that it needs at each position.
/// Grows out of: 02_chunkwise/linear_attention_backward/1_recurrent.cpp
/// Improves on: there, no gate multiplies the state.
/// Unchanged: two passes; the first computes dq, the second dk and dv.
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
/// Work: per position 3 Dk Dv multiply-adds in the first pass, 5 Dk Dv in the second.
/// Bytes: k, v, do and g twice, the rest once; each state is written once and read twice.
/// Bound by: memory, for the states.
/// Requires: nothing.
/// Weakness: the states take Dv times the bytes of q, in double 2 Dv times. `closed_form` keeps none.
/// Sources: the chain rule; arXiv 2312.06635, section 4.1, for the recurrence.

#include <cmath>
#include <cstddef>
#include <vector>

#include "03_gla/gla_backward.hpp"

namespace tutorial::gla {
namespace {

/// The state [Dk, Dv] that a walk starts from: zeros if none is given.
std::vector<double> start_of(const FloatBackwardArguments& a, const View<const float>& start, int b, int h) {
  std::vector<double> S(std::size_t(a.Dk) * std::size_t(a.Dv));
  for (int d = 0; d < a.Dk && start.data; ++d) {
    for (int j = 0; j < a.Dv; ++j) S[std::size_t(d) * std::size_t(a.Dv) + std::size_t(j)] = start.row(b, h, d)[j];
  }
  return S;
}

/// Both passes of one head.
void walk(const FloatBackwardArguments& a, int b, int h) {
  const auto Dk = std::size_t(a.Dk), Dv = std::size_t(a.Dv), size = Dk * Dv;
  const double scale = a.scale;
  std::vector<double> states = start_of(a, a.initial_state, b, h);  // [L + 1, Dk, Dv]: S of all positions
  states.resize(std::size_t(a.L + 1) * size);
  for (int t = 0; t < a.L; ++t) {
    const float *k = a.k.row(b, h, t), *v = a.v.row(b, h, t), *d_o = a.d_o.row(b, h, t), *g = a.g.row(b, h, t);
    const double* before = &states[std::size_t(t) * size];
    double* S = &states[std::size_t(t + 1) * size];
    for (std::size_t d = 0; d < Dk; ++d) {
      const double gate = std::exp(double(g[d]));
      double sum = 0;
      for (std::size_t j = 0; j < Dv; ++j) {
        S[d * Dv + j] = gate * before[d * Dv + j] + double(k[d]) * v[j];
        sum += S[d * Dv + j] * d_o[j];
      }
      a.dq.row(b, h, t)[d] = float(scale * sum);
    }
  }

  std::vector<double> dS = start_of(a, a.dfinal_state, b, h), dv(Dv);
  for (int t = a.L - 1; t >= 0; --t) {
    const float *q = a.q.row(b, h, t), *k = a.k.row(b, h, t), *v = a.v.row(b, h, t), *d_o = a.d_o.row(b, h, t);
    const double* before = &states[std::size_t(t) * size];
    dv.assign(Dv, 0);
    for (std::size_t d = 0; d < Dk; ++d) {
      const double gate = std::exp(double(a.g.row(b, h, t)[d]));
      double sum = 0, dgate = 0;
      for (std::size_t j = 0; j < Dv; ++j) {
        dS[d * Dv + j] += scale * q[d] * d_o[j];
        sum += dS[d * Dv + j] * v[j];
        dv[j] += dS[d * Dv + j] * k[d];
        dgate += dS[d * Dv + j] * before[d * Dv + j];
        dS[d * Dv + j] *= gate;
      }
      a.dk.row(b, h, t)[d] = float(sum);
      a.dg.row(b, h, t)[d] = float(gate * dgate);
    }
    for (std::size_t j = 0; j < Dv; ++j) a.dv.row(b, h, t)[j] = float(dv[j]);
  }
  for (std::size_t d = 0; d < Dk && a.dinitial_state.data; ++d) {
    for (std::size_t j = 0; j < Dv; ++j) a.dinitial_state.row(b, h, std::int64_t(d))[j] = float(dS[d * Dv + j]);
  }
}

}  // namespace

void recurrent_backward(const FloatBackwardArguments& a) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) walk(a, b, h);
  }
}

}  // namespace tutorial::gla
