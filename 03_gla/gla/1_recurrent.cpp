/// @file
/// `recurrent`: a state that forgets.
///
/// Idea: before position t adds its k_t^T v_t, row d of the state is multiplied by a gate of its own, exp(g_td) <= 1.
/// What was written into a row fades, at a speed that the data choose.
/// Grows out of: 01_linear_attention/causal_dot_product/2_recurrent.cpp
/// Improves on: the state of chapters 01 and 02 is a sum of everything since the beginning, and nothing in it fades.
/// Unchanged: the two loops. With g = 0 it is chapter 02's operator (matches_chapter_02.cpp runs both).
/// Equation:
///
///     S_t = diag(exp(g_t)) S_{t-1} + k_t^T v_t        row d of S belongs to element d of g_t, k_t and q_t
///     o_t = scale q_t S_t
///
/// Shapes: q, k, g [B, H, L, Dk]; v, o [B, H, L, Dv]; S_0 and final_state [B, H, Dk, Dv]; fp32 in host memory. S [Dk,
/// Dv] is in double, as are all sums: every stage is checked against this one.
/// Thread mapping: OpenMP gives each thread one head at a time.
/// Resources: S, 8 Dk Dv bytes per thread.
/// Work: per position Dk exponentials, Dk Dv multiplications and 2 Dk Dv multiply-adds.
/// Bytes: q, k, v, g and o once.
/// Bound by: the cores' arithmetic in double, half the rate of fp32.
/// Requires: nothing. No gate is too small: exp(-1e4) is 0, and a product with 0 forgets everything.
/// Weakness: L dependent steps, as in chapter 02.
/// Sources: arXiv 2312.06635, section 4.1, "recurrent form".

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "03_gla/gla.hpp"

namespace tutorial::gla {
namespace {

/// The recurrence of one (batch, head).
void recurrence(const FloatArguments& a, int b, int h) {
  const auto Dv = std::size_t(a.Dv);
  std::vector<double> S(std::size_t(a.Dk) * Dv), v(Dv), o(Dv);
  for (int d = 0; d < a.Dk && a.initial_state.data; ++d) {
    std::copy_n(a.initial_state.row(b, h, d), Dv, &S[std::size_t(d) * Dv]);
  }
  for (int t = 0; t < a.L; ++t) {
    const float* q_t = a.q.row(b, h, t);
    const float* k_t = a.k.row(b, h, t);
    const float* g_t = a.g.row(b, h, t);
    v.assign(a.v.row(b, h, t), a.v.row(b, h, t) + Dv);
    o.assign(Dv, 0.0);
    for (int d = 0; d < a.Dk; ++d) {
      const double q = q_t[d];
      const double k = k_t[d];
      const double gate = std::exp(double(g_t[d]));
      double* row = &S[std::size_t(d) * Dv];
      for (std::size_t j = 0; j < Dv; ++j) {
        row[j] = gate * row[j] + k * v[j];
        o[j] += q * row[j];
      }
    }
    for (std::size_t j = 0; j < Dv; ++j) a.o.row(b, h, t)[j] = float(double(a.scale) * o[j]);
  }
  for (int d = 0; d < a.Dk && a.final_state.data; ++d) {
    std::copy_n(&S[std::size_t(d) * Dv], Dv, a.final_state.row(b, h, d));
  }
}

}  // namespace

void recurrent(const FloatArguments& a) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) recurrence(a, b, h);
  }
}

}  // namespace tutorial::gla
