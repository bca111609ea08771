/// @file
/// Stage 1, `recurrent`: the gradients position after position, without storing a state.
///
/// Idea: three walks. The first goes forwards with S. It computes dq and keeps what each step adds under its key,
/// delta_t. The second goes backwards with dS, whose step needs no S: the operator is linear in v and in S_0, so its
/// adjoint is a recurrence of the same kind. It computes dv, dbeta, and the part of dk that is due to the write k_t^T
/// delta_t. The third goes forwards with S once more, for the part of dk that is due to the read k_t S_{t-1}. Between
/// the walks only rows are kept, [L, Dv], where all states would be [L, Dk, Dv].
/// Grows out of: 05_deltanet_wy/delta_rule/1_recurrent.cpp
/// Improves on: nothing yet computes gradients.
/// Unchanged: the step of the operator.
/// Equation:
///
///     r_t = v_t - k_t S_{t-1},   S_t = S_{t-1} + beta_t k_t^T r_t        t = 1 ... L
///     dq_t = scale do_t S_t^T
///
///     dS_t = dS_t + scale q_t^T do_t,   e_t = k_t dS_t                   t = L ... 1
///     dv_t = beta_t e_t,   dbeta_t = e_t . r_t,   dk_t = beta_t r_t dS_t^T
///     dS_{t-1} = dS_t - k_t^T dv_t
///
///     dk_t = dk_t - dv_t S_{t-1}^T                                       t = 1 ... L
///
/// With `normalize_keys` k_t stands for f_t k_t, and the last line is followed by dk_t = f_t (dk_t - (dk_t . k_t) k_t).
///
/// Shapes: q, k, dq, dk [B, H, L, Dk]; v, do, dv [B, H, L, Dv]; beta, dbeta [B, H, L]; S, dS [Dk, Dv]; fp32 in host
/// memory. The walks compute in double, because this stage is the reference of all others.
/// Thread mapping: OpenMP gives each thread one head at a time.
/// Resources: a state, L rows of Dv and L rows of Dk in double per thread.
/// Work: 3, 4 and 2 Dk Dv multiply-adds per position in the three walks.
/// Bytes: k three times, q, v, beta and do once or twice, each gradient once.
/// Bound by: the cores' arithmetic, one position after the other.
/// Requires: what `recurrent` of the operator requires.
/// Weakness: 3 L dependent steps, and none is a matrix product. `chunkwise` has products.
/// Sources: arXiv 2406.06484, the recurrence; its adjoint step by step.

#include <vector>

#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "05_deltanet_wy/delta_rule_backward/rows.hpp"

namespace tutorial::delta_rule {
namespace {

/// The three walks of one (batch, head).
void walks(const FloatBackwardArguments& a, int b, int h) {
  const int L = a.L;
  const double scale = double(a.scale);
  Rows q = read(a.q, b, h, L, a.Dk), k = read(a.k, b, h, L, a.Dk), d_o = read(a.d_o, b, h, L, a.Dv);
  Rows beta = read(a.beta, b, h, L, 1), dq(L, a.Dk), dk(L, a.Dk), dv(L, a.Dv), dbeta(L, 1), subtracted(L, a.Dk),
       dbeta_subtracted(L, 1);
  std::vector<double> factors;
  if (a.normalize_keys) factors = normalize(k);

  Rows S = read(a.initial_state, b, h, a.Dk, a.Dv), v = read(a.v, b, h, L, a.Dv), r = v;
  for (int t = 0; t < L; ++t) {
    add_read(r[t], -1, k[t], S);
    add_outer(S, *beta[t], k[t], r[t]);
    add_transposed_read(dq[t], scale, d_o[t], S);
  }

  Rows dS = read(a.dfinal_state, b, h, a.Dk, a.Dv);
  for (int t = L - 1; t >= 0; --t) {
    add_outer(dS, scale, q[t], d_o[t]);
    add_read(dv[t], 1, k[t], dS);  // e_t
    *dbeta[t] = dot(dv[t], r[t], r.width);
    *dbeta_subtracted[t] = dot(dv[t], v[t], v.width) - *dbeta[t];
    for (std::size_t j = 0; j < dv.width; ++j) dv[t][j] *= *beta[t];
    add_transposed_read(dk[t], *beta[t], r[t], dS);
    add_outer(dS, -1, k[t], dv[t]);
  }

  S = read(a.initial_state, b, h, a.Dk, a.Dv);
  for (int t = 0; t < L; ++t) {
    add_transposed_read(subtracted[t], 1, dv[t], S);
    for (std::size_t d = 0; d < dk.width; ++d) dk[t][d] -= subtracted[t][d];
    add_outer(S, *beta[t], k[t], r[t]);
  }
  if (a.normalize_keys) through_normalization(dk, subtracted, k, factors);
  write(a.dq, b, h, dq);
  write(a.dk, b, h, dk);
  write(a.dv, b, h, dv);
  write(a.dbeta, b, h, dbeta);
  write(a.dk_subtracted, b, h, subtracted);
  write(a.dbeta_subtracted, b, h, dbeta_subtracted);
  write(a.dinitial_state, b, h, dS);
}

}  // namespace

void recurrent_backward(const FloatBackwardArguments& a) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) walks(a, b, h);
  }
}

}  // namespace tutorial::delta_rule
