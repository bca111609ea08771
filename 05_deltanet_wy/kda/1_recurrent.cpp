/// @file
/// `recurrent`: a state that forgets and overwrites.
///
/// Idea: a step first multiplies row d of the state by its gate exp(g_td) <= 1, as in chapter 03. Then it is the step
/// of the delta rule: it reads what is left under k_t and adds the difference from v_t. The gates make room for what is
/// new without knowing which keys will come; the delta rule replaces what is stored under the key that did come.
/// Grows out of: 05_deltanet_wy/delta_rule/1_recurrent.cpp
/// Improves on: the delta rule alone forgets nothing but what a later key overwrites.
/// Unchanged: the three loops of a step. With g = 0 it is delta_rule, and where no key meets an earlier one it is
/// chapter 03's gla (kda_neighbours.cpp runs both).
/// Equation:
///
///     S'_t = diag(exp(g_t)) S_{t-1}                   [Dk, Dv]: what is left of the state
///     delta_t = beta_t (v_t - k_t S'_t)               [Dv]
///     S_t = S'_t + k_t^T delta_t
///     o_t = scale q_t S_t
///
/// Shapes: q, k, g [B, H, L, Dk]; v, o [B, H, L, Dv]; beta [B, H, L]; S_0 and final_state [B, H, Dk, Dv]; fp32 in host
/// memory.
/// Thread mapping: OpenMP gives each thread one head at a time. Everything is computed in double because this stage is
/// also the reference for all others.
/// Resources: S, 8 Dk Dv bytes per thread.
/// Work: per position Dk exponentials, Dk Dv multiplications and 3 Dk Dv multiply-adds.
/// Bytes: q, k, v, g, beta and o once.
/// Bound by: the cores' arithmetic, at half the rate of fp32.
/// Requires: |k_t| at most about 1, as delta_rule. No gate is too small: exp(-1e4) is 0.
/// Weakness: L dependent steps.
/// Source: arXiv 2510.26692, equation 1 (there in columns: our S is its transpose).

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "05_deltanet_wy/kda.hpp"

namespace tutorial::kda {
namespace {

/// All steps of one (batch, head).
void recurrence(const FloatArguments& a, int b, int h) {
  const auto Dk = std::size_t(a.Dk), Dv = std::size_t(a.Dv);
  std::vector<double> S(Dk * Dv), k(Dk), delta(Dv), o(Dv);
  for (std::size_t d = 0; d < Dk && a.initial_state.data; ++d) {
    std::copy_n(a.initial_state.row(b, h, std::int64_t(d)), Dv, &S[d * Dv]);
  }
  for (int t = 0; t < a.L; ++t) {
    const float *q = a.q.row(b, h, t), *v = a.v.row(b, h, t), *g = a.g.row(b, h, t);
    std::copy_n(a.k.row(b, h, t), Dk, k.begin());
    if (a.normalize_keys) {
      double squares = 0;
      for (const double x : k) squares += x * x;
      for (double& x : k) x /= std::sqrt(squares + double(kKeyEps));
    }
    std::copy_n(v, Dv, delta.begin());
    for (std::size_t d = 0; d < Dk; ++d) {
      const double gate = std::exp(double(g[d]));
      for (std::size_t j = 0; j < Dv; ++j) {
        S[d * Dv + j] *= gate;
        delta[j] -= k[d] * S[d * Dv + j];
      }
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

}  // namespace tutorial::kda
