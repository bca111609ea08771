/// @file
/// `recurrent`: the gradients position after position, without storing a state.
///
/// Idea: two walks. The first goes forwards with S and computes dq and what is wrong with each answer, r. The second
/// goes backwards with dS, whose step needs no S, and computes dv, dbeta and the part of dk that is due to the write.
/// It fades dS where the first walk has faded S. The part of dk that is due to the read and the gradient of a gate need
/// the state S' of their position, which a gate has just faded. So the first walk keeps S before each segment of 64
/// positions, and the second computes the S' of a segment from it. Every term of dg_t = <dS', S'> contains the gate:
/// however strong gates are, no digit is lost.
/// Grows out of: 05_deltanet_wy/delta_rule_backward/1_recurrent.cpp
/// Improves on: the stage of `delta_rule` knows no gates.
/// Unchanged: the steps of both directions, and what each of them leaves.
/// Equation:
///
///     S' = exp(g_t) S,   r_t = v_t - k_t S',   S = S' + beta_t k_t^T r_t      t = 1 ... L
///     dq_t = scale do_t S^T
///
///     dS = dS + scale q_t^T do_t,   e = k_t dS                                t = L ... 1
///     dv_t = beta_t e,   dbeta_t = e . r_t,   dk_t = beta_t r_t dS^T - dv_t S'^T
///     dS' = dS - k_t^T dv_t,   dg_t = <dS', S'>,   dS = exp(g_t) dS'
///
/// Shapes: q, k, dq, dk [B, H, L, Dk]; v, do, dv [B, H, L, Dv]; beta, g, dbeta, dg [B, H, L]; S, dS [Dk, Dv]; fp32 in
/// host memory. The walks compute in double, because this stage is the reference of the other.
/// Thread mapping: OpenMP gives each thread one head at a time.
/// Resources: ceil(L / 64) + 66 states, 4 L rows of Dv and 5 L rows of Dk in double per thread.
/// Work: 3 Dk Dv multiply-adds per position in the first walk, 7 in the second, and 3 Dk Dv multiplications by gates.
/// Bytes: each input and each gradient once.
/// Bound by: the cores' arithmetic, one position after the other.
/// Requires: what `recurrent` of the operator requires.
/// Weakness: 3 L dependent steps, and none is a matrix product. `chunkwise` has products.
/// Sources: arXiv 2412.06464, equation 10; its adjoint step by step is ours.

#include <cmath>
#include <vector>

#include "05_deltanet_wy/delta_rule_backward/rows.hpp"
#include "05_deltanet_wy/gated_delta_rule_backward.hpp"

namespace tutorial::gated_delta_rule {
namespace {

using namespace delta_rule;  // rows

constexpr int kSegment = 64;

/// S = exp(g) S.
void fade(Rows& S, double g) {
  const double gate = std::exp(g);
  for (double& x : S.data) x *= gate;
}

/// Both walks of one (batch, head).
void walks(const FloatBackwardArguments& a, int b, int h) {
  const int L = a.L;
  const double scale = double(a.scale);
  Rows q = read(a.q, b, h, L, a.Dk), k = read(a.k, b, h, L, a.Dk), d_o = read(a.d_o, b, h, L, a.Dv);
  Rows beta = read(a.beta, b, h, L, 1), g = read(a.g, b, h, L, 1), dg(L, 1), dq(L, a.Dk), dk(L, a.Dk), dv(L, a.Dv),
       dbeta(L, 1), subtracted(L, a.Dk), dbeta_subtracted(L, 1), terms(L, 1);
  std::vector<double> factors;
  if (a.normalize_keys) factors = normalize(k);

  std::vector<Rows> kept;  // S before each segment
  Rows S = read(a.initial_state, b, h, a.Dk, a.Dv), v = read(a.v, b, h, L, a.Dv), r = v;
  for (int t = 0; t < L; ++t) {
    if (t % kSegment == 0) kept.push_back(S);
    fade(S, *g[t]);
    add_read(r[t], -1, k[t], S);
    add_outer(S, *beta[t], k[t], r[t]);
    add_transposed_read(dq[t], scale, d_o[t], S);
  }

  Rows dS = read(a.dfinal_state, b, h, a.Dk, a.Dv);
  for (int end = L; end > 0; kept.pop_back()) {
    const int first = (end - 1) / kSegment * kSegment;
    std::vector<Rows> faded;  // S' of the segment
    S = kept.back();
    for (int t = first; t < end; ++t) {
      fade(S, *g[t]);
      faded.push_back(S);
      add_outer(S, *beta[t], k[t], r[t]);
    }
    for (int t = end - 1; t >= first; --t) {
      const Rows& before = faded[std::size_t(t - first)];
      add_outer(dS, scale, q[t], d_o[t]);
      add_read(dv[t], 1, k[t], dS);  // e_t
      *dbeta[t] = dot(dv[t], r[t], r.width);
      *dbeta_subtracted[t] = dot(dv[t], v[t], v.width) - *dbeta[t];
      for (std::size_t j = 0; j < dv.width; ++j) dv[t][j] *= *beta[t];
      add_transposed_read(dk[t], *beta[t], r[t], dS);
      add_transposed_read(subtracted[t], 1, dv[t], before);
      for (std::size_t d = 0; d < dk.width; ++d) dk[t][d] -= subtracted[t][d];
      add_outer(dS, -1, k[t], dv[t]);  // dS'
      *dg[t] = dot(dS[0], before[0], dS.data.size());
      for (std::size_t i = 0; i < dS.data.size(); ++i)
        *terms[t] += dS.data[i] * dS.data[i] * before.data[i] * before.data[i];
      *terms[t] = std::sqrt(*terms[t]);
      fade(dS, *g[t]);
    }
    end = first;
  }
  if (a.normalize_keys) through_normalization(dk, subtracted, k, factors);
  write(a.dq, b, h, dq);
  write(a.dk, b, h, dk);
  write(a.dv, b, h, dv);
  write(a.dbeta, b, h, dbeta);
  write(a.dg, b, h, dg);
  write(a.dg_terms, b, h, terms);
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

}  // namespace tutorial::gated_delta_rule
