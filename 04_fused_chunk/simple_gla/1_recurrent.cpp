/// @file
/// `recurrent`: one gate for the whole state.
///
/// Idea: before position t adds its k_t^T v_t, the state is multiplied by one number exp(g_t) <= 1: all of it fades at
/// the same speed.
/// Grows out of: 03_gla/gla/1_recurrent.cpp
/// Unchanged: the recurrence of gla, with the same gate in every row.
/// Equation:
///
///   S_t = exp(g_t) S_{t-1} + k_t^T v_t        S [Dk, Dv]
///   o_t = scale q_t S_t
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; g [B, H, L]; S_0 and final_state [B, H, Dk, Dv]; fp32 in host
/// memory.
/// Thread mapping: OpenMP gives each thread one head at a time. Everything is computed in double because this stage is
/// also the reference for all others.
/// Resources: S, 8 Dk Dv bytes per thread.
/// Work: per position one exponential, Dk Dv multiplications and 2 Dk Dv multiply-adds.
/// Bytes: q, k, v, g and o once.
/// Bound by: the cores' arithmetic, at half the rate of fp32.
/// Requires: nothing.
/// Weakness: L dependent steps. `chunkwise` takes one step per chunk.
/// Sources: arXiv 2405.21060, section 2.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "04_fused_chunk/simple_gla.hpp"

namespace tutorial::simple_gla {
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
    const float *q = a.q.row(b, h, t), *k = a.k.row(b, h, t), *v = a.v.row(b, h, t);
    const double gate = std::exp(double(*a.g.row(b, h, t)));
    o.assign(Dv, 0.0);
    for (int d = 0; d < a.Dk; ++d) {
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

}  // namespace tutorial::simple_gla
