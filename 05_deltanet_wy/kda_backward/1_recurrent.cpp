/// @file
/// `recurrent`: the gradients position after position, without storing a state.
///
/// Idea: three walks. The first goes forwards with S. It computes dq and keeps r_t, what is wrong with the state's
/// answers. The second goes backwards with dS, whose step needs no state: the operator is linear in v and S_0, so its
/// adjoint is a recurrence of the same kind. It computes dv, dbeta, and the part of dk that is due to the write. The
/// third goes forwards once more, for the part of dk that is due to the read. dg_t is the product of a state with a
/// gradient of a state, of the same position, which no walk has at once. But multiply the lines of a step by S'_t, S_t
/// and dS_t, and add up their rows: what dg loses and gains from position to position is products of rows that are
/// there.
///
///     dg_t = dg_{t+1} + q_t . dq_t + k_t . (dk_t due to the read - dk_t due to the write)
///     dg_{L+1} = the sums over the rows of dfinal_state . S_L
///
/// No gate is divided by. Where one is 0, dg_t is 0, too: there the sum cancels, up to its rounding errors.
/// Grows out of: 05_deltanet_wy/gated_delta_rule_backward/1_recurrent.cpp
/// Improves on: the stage of `gated_delta_rule` has one gate for all rows of the state, and one dg.
/// Unchanged: the three walks.
/// Equation:
///
///     S'_t = diag(exp(g_t)) S_{t-1},   r_t = v_t - k_t S'_t,   S_t = S'_t + beta_t k_t^T r_t          t = 1 ... L
///     dq_t = scale do_t S_t^T
///
///     dS_t += scale q_t^T do_t,   dv_t = beta_t k_t dS_t,   dbeta_t = (k_t dS_t) . r_t               t = L ... 1
///     write_t = beta_t r_t dS_t^T,   dS_{t-1} = diag(exp(g_t)) (dS_t - k_t^T dv_t)
///
///     read_t = -dv_t S'_t^T,  dk_t = read_t + write_t                                                t = 1 ... L
///
/// Shapes: q, k, g, dq, dk, dg [B, H, L, Dk]; v, do, dv [B, H, L, Dv]; beta, dbeta [B, H, L]; S, dS [Dk, Dv]; fp32 in
/// host memory. The walks compute in double, because this stage is the reference of all others.
/// Thread mapping: OpenMP gives each thread one head at a time.
/// Resources: two states, 8 L rows of Dk and 4 L rows of Dv in double per thread.
/// Work: 3, 4 and 3 Dk Dv multiply-adds per position in the three walks, and 3 Dk exponentials.
/// Bytes: k and g three times, q, v, beta and do once or twice, each gradient once.
/// Bound by: the cores' arithmetic, one position after the other.
/// Requires: what `recurrent` of the operator requires.
/// Weakness: 3 L dependent steps, and none is a matrix product. `chunkwise` has products.
/// Sources: arXiv 2510.26692, equation 1, and its adjoint; the sum for dg: arXiv 2312.06635, section 4.3 and appendix,
/// for gla.

#include <cmath>
#include <vector>

#include "05_deltanet_wy/delta_rule_backward/rows.hpp"
#include "05_deltanet_wy/kda_backward.hpp"

namespace tutorial::kda {
namespace {

using namespace delta_rule;  // rows

/// S = diag(exp(g)) S.
void fade(Rows& S, const double* g) {
  for (int d = 0; d < S.count; ++d) {
    const double gate = std::exp(g[d]);
    for (std::size_t j = 0; j < S.width; ++j) S[d][j] *= gate;
  }
}

/// The three walks of one (batch, head).
void walks(const FloatBackwardArguments& a, int b, int h) {
  const int L = a.L;
  const double scale = double(a.scale);
  Rows q = read(a.q, b, h, L, a.Dk), k = read(a.k, b, h, L, a.Dk), d_o = read(a.d_o, b, h, L, a.Dv);
  Rows beta = read(a.beta, b, h, L, 1), g = read(a.g, b, h, L, a.Dk), dg(L, a.Dk), dq(L, a.Dk), dk(L, a.Dk),
       dv(L, a.Dv), dbeta(L, 1), subtracted(L, a.Dk), dbeta_subtracted(L, 1);
  std::vector<double> factors;
  if (a.normalize_keys) factors = normalize(k);

  Rows S = read(a.initial_state, b, h, a.Dk, a.Dv), v = read(a.v, b, h, L, a.Dv), r = v;
  for (int t = 0; t < L; ++t) {
    fade(S, g[t]);
    add_read(r[t], -1, k[t], S);
    add_outer(S, *beta[t], k[t], r[t]);
    add_transposed_read(dq[t], scale, d_o[t], S);
  }

  Rows dS = read(a.dfinal_state, b, h, a.Dk, a.Dv);
  std::vector<double> sum;  // over each row of dfinal_state . S_L, then dg_t
  for (int d = 0; d < a.Dk; ++d) sum.push_back(dot(S[d], dS[d], S.width));
  for (int t = L - 1; t >= 0; --t) {
    add_outer(dS, scale, q[t], d_o[t]);
    add_read(dv[t], 1, k[t], dS);  // e_t
    *dbeta[t] = dot(dv[t], r[t], r.width);
    *dbeta_subtracted[t] = dot(dv[t], v[t], v.width) - *dbeta[t];
    for (std::size_t j = 0; j < dv.width; ++j) dv[t][j] *= *beta[t];
    add_transposed_read(dk[t], *beta[t], r[t], dS);
    add_outer(dS, -1, k[t], dv[t]);
    fade(dS, g[t]);
  }

  S = read(a.initial_state, b, h, a.Dk, a.Dv);
  for (int t = 0; t < L; ++t) {
    fade(S, g[t]);
    add_transposed_read(subtracted[t], 1, dv[t], S);
    for (std::size_t d = 0; d < dk.width; ++d) dk[t][d] -= subtracted[t][d];
    add_outer(S, *beta[t], k[t], r[t]);
  }

  for (int t = L - 1; t >= 0; --t) {  // subtracted is -read, and dk is write + read
    for (std::size_t d = 0; d < dk.width; ++d) {
      dg[t][d] = sum[d] += q[t][d] * dq[t][d] - k[t][d] * (2 * subtracted[t][d] + dk[t][d]);
    }
  }
  if (a.normalize_keys) through_normalization(dk, subtracted, k, factors);
  write(a.dq, b, h, dq);
  write(a.dk, b, h, dk);
  write(a.dv, b, h, dv);
  write(a.dbeta, b, h, dbeta);
  write(a.dg, b, h, dg);
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

}  // namespace tutorial::kda
