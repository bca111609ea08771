/// @file
/// `recurrent`: the gradients position after position, without storing a state.
///
/// Idea: three walks. The first goes forwards with S and computes dq and what is wrong with each answer, r. The second
/// goes backwards with dS, whose step needs no S, and computes dv, dbeta and the part of dk that is due to the write.
/// It fades dS where the first walk has faded S. The third goes forwards with S once more, for the part of dk that is
/// due to the read. The gradient of a gate would need S and dS of the same position, `<dS', S'>`. But the sum of this
/// over all elements follows from rows that are there anyway, from the last position to the first (rows.hpp).
/// Grows out of: 05_deltanet_wy/gated_delta_rule/1_recurrent.cpp
/// Improves on: nothing yet computes gradients of this operator.
/// Unchanged: the step of the operator.
/// Equation:
///
///     S' = exp(g_t) S,   r_t = v_t - k_t S',   S = S' + beta_t k_t^T r_t      t = 1 ... L
///     dq_t = scale do_t S^T
///
///     dS = dS + scale q_t^T do_t,   e = k_t dS                                t = L ... 1
///     dv_t = beta_t e,   dbeta_t = e . r_t,   dk_t = beta_t r_t dS^T
///     dS = exp(g_t) (dS - k_t^T dv_t)
///
///     S' = exp(g_t) S,   dk_t = dk_t - dv_t S'^T,   S = S' + beta_t k_t^T r_t  t = 1 ... L
///
///     dg_t = dg_{t+1} + q_t . dq_t - v_t . dv_t,   dg_{L+1} = <dfinal_state, S_L>
///
/// Shapes: q, k, dq, dk [B, H, L, Dk]; v, do, dv [B, H, L, Dv]; beta, g, dbeta, dg [B, H, L]; S, dS [Dk, Dv]; fp32 in
/// host memory. The walks compute in double, because this stage is the reference of the other.
/// Thread mapping: OpenMP gives each thread one head at a time.
/// Resources: two states, 3 L rows of Dv and 3 L rows of Dk in double per thread, and gradients.
/// Work: 3, 4 and 2 Dk Dv multiply-adds per position in the three walks, and 3 Dk Dv multiplications by gates.
/// Bytes: each input and each gradient once.
/// Bound by: the cores' arithmetic, one position after the other.
/// Requires: what `recurrent` of the operator requires.
/// Weakness: 3 L dependent steps, and none is a matrix product. `chunkwise` has products.
/// Sources: arXiv 2412.06464, equation 10; its adjoint step by step is ours.

#include <cmath>

#include "05_deltanet_wy/gated_delta_rule_backward/rows.hpp"
#include "common/parallel.hpp"

namespace tutorial::gated_delta_rule {
namespace {

/// The three walks of one (batch, head).
void walks(const FloatBackwardArguments& a, int b, int h) {
  Head x(a, b, h);
  Matrix S = x.S0, r(a.L, a.Dv);
  for (int t = 0; t < a.L; ++t) {
    S *= std::exp(x.g[t]);
    r.row(t) = x.v.row(t) - x.k.row(t) * S;
    S += x.beta[t] * x.k.row(t).transpose() * r.row(t);
    x.dq.row(t) = double(a.scale) * x.d_o.row(t) * S.transpose();
  }
  const Matrix last = S;

  Matrix dS = x.dSL;
  for (int t = a.L - 1; t >= 0; --t) {
    dS += double(a.scale) * x.q.row(t).transpose() * x.d_o.row(t);
    const Matrix e = x.k.row(t) * dS;
    x.dbeta[t] = e.row(0).dot(r.row(t));
    x.dbeta_subtracted[t] = e.row(0).dot(x.v.row(t)) - x.dbeta[t];
    x.dv.row(t) = x.beta[t] * e;
    x.dk.row(t) = x.beta[t] * r.row(t) * dS.transpose();
    dS -= x.k.row(t).transpose() * x.dv.row(t);
    dS *= std::exp(x.g[t]);
  }

  S = x.S0;
  for (int t = 0; t < a.L; ++t) {
    S *= std::exp(x.g[t]);
    x.dk_subtracted.row(t) = x.dv.row(t) * S.transpose();
    x.dk.row(t) -= x.dk_subtracted.row(t);
    S += x.beta[t] * x.k.row(t).transpose() * r.row(t);
  }
  x.write(a, b, h, last, dS);
}

}  // namespace

void recurrent_backward(const FloatBackwardArguments& a) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) walks(a, b, h);
  }
}

std::int64_t recurrent_backward_memory(const FloatBackwardArguments& a) {
  return (head_memory(a) + 8 * (std::int64_t(a.L) * a.Dv + 3 * std::int64_t(a.Dk) * a.Dv)) * processor_count();
}

}  // namespace tutorial::gated_delta_rule
