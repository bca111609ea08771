/// @file
/// Stage 1, `recurrent`: a state that forgets.
///
/// Idea: before position t adds its k_t^T v_t, it multiplies row d of the state by a gate exp(g_td) <= 1 of its own:
/// what is written into a row fades, at a speed that the data choose.
/// Mends: the state of chapter 02 is a sum of everything since the beginning, and what is in it stays in it. Same: the
/// recurrence; with g = 0 it is chapter 02's to the letter (against_chapter_02.cpp runs that).
///
///   S_t = diag(exp(g_t)) S_{t-1} + k_t^T v_t        S [Dk, Dv]; row d of S belongs to element d of g_t, k_t and q_t
///   o_t = scale q_t S_t
///
/// Shapes: q, k, g [B, H, L, Dk]; v, o [B, H, L, Dv]; S_0 and final_state [B, H, Dk, Dv]; fp32 in host memory.
/// Who does what: OpenMP gives each thread a head at a time. Everything is computed in double: this is the reference
/// of all other stages, too.
/// Memory: S, 8 Dk Dv bytes a thread. Work: Dk exponentials, Dk Dv multiplications and 2 Dk Dv multiply-adds a
/// position. Bytes: q, k, v, g and o once.
/// Limit: the cores' arithmetic, at half the rate of fp32. Needs: nothing. No gate is too strong: exp(-1e4) is 0, and a
/// product with 0 is what forgetting everything means.
/// Weakness: L steps in line, as in chapter 02. Stage 2 does without.
/// Source: arXiv 2312.06635, section 4.1, "recurrent form".

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "03_gla/gla.hpp"

namespace tutorial::gla {
namespace {

/// All steps of one (batch, head).
void recurrence(const FloatArguments& a, int b, int h) {
  const auto Dv = std::size_t(a.Dv);
  std::vector<double> S(std::size_t(a.Dk) * Dv), o(Dv);
  for (int d = 0; d < a.Dk && a.initial_state.data; ++d) {
    const float* start = a.initial_state.row(b, h, d);
    std::copy(start, start + Dv, &S[std::size_t(d) * Dv]);
  }
  for (int t = 0; t < a.L; ++t) {
    const float *q = a.q.row(b, h, t), *k = a.k.row(b, h, t), *v = a.v.row(b, h, t), *g = a.g.row(b, h, t);
    o.assign(Dv, 0.0);
    for (int d = 0; d < a.Dk; ++d) {
      const double gate = std::exp(double(g[d]));
      double* row = &S[std::size_t(d) * Dv];
      for (std::size_t j = 0; j < Dv; ++j) {
        row[j] = gate * row[j] + double(k[d]) * double(v[j]);
        o[j] += double(q[d]) * row[j];
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
