/// @file
/// `recurrent`: the state fades, then overwrites.
///
/// Idea: the gate comes first. Before position t reads what the state answers to k_t, the whole state is multiplied by
/// exp(g_t) <= 1, as in chapter 04's simple_gla. The delta rule then replaces the answer of the faded state. So one
/// step can do both: let everything fade at once, which the delta rule alone cannot, and replace what is under one key,
/// which a gate alone cannot.
/// Grows out of: 05_deltanet_wy/delta_rule/1_recurrent.cpp
/// Unchanged: everything after the gate. With g_t = 0 the operator is delta_rule. For orthonormal keys, beta = 1 and
/// S_0 = 0 there is nothing to replace, and it is simple_gla (gated_delta_rule_neighbours.cpp runs both cases).
///
/// Equation:
///
///     S' = exp(g_t) S_{t-1}                           S' [Dk, Dv]
///     delta_t = beta_t (v_t - k_t S')                 [Dv]: the fraction beta_t of what is missing under k_t
///     S_t = S' + k_t^T delta_t
///     o_t = scale q_t S_t
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; beta, g [B, H, L]; S_0 and final_state [B, H, Dk, Dv]; fp32 in host
/// memory.
/// Thread mapping: OpenMP gives each thread one head at a time. Everything is computed in double because this stage is
/// also the reference for all others.
/// Resources: S, 8 Dk Dv bytes per thread.
/// Work: per position one exponential, Dk Dv multiplications and 3 Dk Dv multiply-adds.
/// Bytes: q, k, v, beta, g and o once.
/// Bound by: the cores' arithmetic, at half the rate of fp32.
/// Requires: |k_t| at most about 1, as in `delta_rule`.
/// Weakness: the L steps are dependent. `chunkwise` takes one step per chunk.
/// Source: arXiv 2412.06464, equation 10 (there in columns: our S is its transpose).

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "05_deltanet_wy/gated_delta_rule.hpp"

namespace tutorial::gated_delta_rule {
namespace {

/// All steps of one (batch, head).
void recurrence(const FloatArguments& a, int b, int h) {
  const auto Dk = std::size_t(a.Dk), Dv = std::size_t(a.Dv);
  std::vector<double> S(Dk * Dv), k(Dk), delta(Dv), o(Dv);
  for (std::size_t d = 0; d < Dk && a.initial_state.data; ++d) {
    std::copy_n(a.initial_state.row(b, h, std::int64_t(d)), Dv, &S[d * Dv]);
  }
  for (int t = 0; t < a.L; ++t) {
    const float *q = a.q.row(b, h, t), *v = a.v.row(b, h, t);
    std::copy_n(a.k.row(b, h, t), Dk, k.begin());
    if (a.normalize_keys) {
      double squares = 0;
      for (const double x : k) squares += x * x;
      for (double& x : k) x /= std::sqrt(squares + double(kKeyEps));
    }
    const double gate = std::exp(double(*a.g.row(b, h, t)));
    for (double& x : S) x *= gate;
    std::copy_n(v, Dv, delta.begin());
    for (std::size_t d = 0; d < Dk; ++d) {
      for (std::size_t j = 0; j < Dv; ++j) delta[j] -= k[d] * S[d * Dv + j];
    }
    for (double& x : delta) x *= double(*a.beta.row(b, h, t));
    o.assign(Dv, 0.0);
    for (std::size_t d = 0; d < Dk; ++d) {
      for (std::size_t j = 0; j < Dv; ++j) {
        S[d * Dv + j] += k[d] * delta[j];
        o[j] += double(q[d]) * S[d * Dv + j];
      }
    }
    for (std::size_t j = 0; j < Dv; ++j) a.o.row(b, h, t)[j] = float(double(a.scale) * o[j]);
  }
  for (std::size_t d = 0; d < Dk && a.final_state.data; ++d) {
    std::copy_n(&S[d * Dv], Dv, a.final_state.row(b, h, std::int64_t(d)));
  }
}

}  // namespace

void recurrent(const FloatArguments& a) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) recurrence(a, b, h);
  }
}

}  // namespace tutorial::gated_delta_rule
