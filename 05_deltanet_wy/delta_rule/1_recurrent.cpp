/// @file
/// Stage 1, `recurrent`: a state that overwrites.
///
/// Idea: before position t writes v_t under k_t, it reads what the state already answers to k_t, which is k_t S_{t-1}.
/// It adds only the difference. With beta_t = 1 and |k_t| = 1 the state then answers k_t with v_t, whatever it answered
/// before. With a smaller beta_t it moves that fraction of the way. The state of chapter 02 is a sum: to a key that
/// comes twice it answers with the sum of both values. The gates of chapter 03 make the whole state fade, not just the
/// outdated part. For orthonormal keys, beta = 1 and S_0 = 0 there is nothing to replace, and the operator is chapter
/// 02's (delta_rule_neighbour.cpp runs that case).
/// Grows out of: 04_fused_chunk/simple_gla/1_recurrent.cpp
/// Improves on: there, the state only adds, and a gate fades all of it.
/// Unchanged: a state in double, one position after the other.
///
/// Equation:
///
///     delta_t = beta_t (v_t - k_t S_{t-1})            [Dv]: the fraction beta_t of what is missing under k_t
///     S_t = S_{t-1} + k_t^T delta_t                   S [Dk, Dv]
///     o_t = scale q_t S_t
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; beta [B, H, L]; S_0 and final_state [B, H, Dk, Dv]; fp32 in host
/// memory.
/// Thread mapping: OpenMP gives each thread one head at a time. Everything is computed in double because this stage is
/// also the reference for all others.
/// Resources: S, 8 Dk Dv bytes per thread.
/// Work: 3 Dk Dv multiply-adds per position, Dk Dv more than in chapter 02; they compute k_t S.
/// Bytes: q, k, v, beta and o once.
/// Bound by: the cores' arithmetic, at half the rate of fp32.
/// Requires: |k_t| at most about 1. A step multiplies the component of the state along k_t by 1 - beta_t |k_t|^2. If
/// that factor is below -1, the component grows without bound.
/// Weakness: the L steps are dependent: delta_t needs S_{t-1}, which the step before has written. Chapter 02's chunks
/// sum k_t^T v_t, which needs no state. `dense_product` asks what a whole chunk does to a state.
/// Source: arXiv 2406.06484, section 2.2, equation for S_t (there in columns: our S is its transpose).

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "05_deltanet_wy/delta_rule.hpp"

namespace tutorial::delta_rule {
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

}  // namespace tutorial::delta_rule
