/// @file
/// The operator in double, twice: once by its definition and once, for long sequences, as the recurrence.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "02_chunkwise/linear_attention.hpp"

namespace tutorial::linear_attention {
namespace {

/// sum[j] += factor * row[j].
template <class T>
void add(std::vector<double>& sum, double factor, const T* row) {
  for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += factor * double(row[j]);
}

/// o_t = scale q_t S_0 + sum_{i<=t} scale (q_t . k_i) v_i.
void output_row(const FloatArguments& a, int b, int h, int t) {
  std::vector<double> o(std::size_t(a.Dv), 0.0);
  const float* q = a.q.row(b, h, t);
  if (a.initial_state.data) {
    for (int d = 0; d < a.Dk; ++d) add(o, q[d], a.initial_state.row(b, h, d));
  }
  for (int i = 0; i <= t; ++i) {
    const float* k = a.k.row(b, h, i);
    double score = 0;
#pragma omp simd reduction(+ : score)
    for (int d = 0; d < a.Dk; ++d) score += double(q[d]) * double(k[d]);
    add(o, score, a.v.row(b, h, i));
  }
  for (int j = 0; j < a.Dv; ++j) a.o.row(b, h, t)[j] = float(double(a.scale) * o[std::size_t(j)]);
}

/// Row d of the final state, S_0 + sum_t k_t^T v_t.
void state_row(const FloatArguments& a, int b, int h, int d) {
  std::vector<double> S(std::size_t(a.Dv), 0.0);
  if (a.initial_state.data) add(S, 1, a.initial_state.row(b, h, d));
  for (int t = 0; t < a.L; ++t) add(S, a.k.row(b, h, t)[d], a.v.row(b, h, t));
  std::copy(S.begin(), S.end(), a.final_state.row(b, h, d));
}

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
    o.assign(Dv, 0.0);
    for (int d = 0; d < a.Dk; ++d) {
      double* row = &S[std::size_t(d) * Dv];
      for (std::size_t j = 0; j < Dv; ++j) {
        row[j] += double(k[d]) * double(v[j]);
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

void quadratic_double(const FloatArguments& a) {
#pragma omp parallel for collapse(3) schedule(dynamic, 16)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) {
      for (int t = 0; t < a.L; ++t) output_row(a, b, h, t);
    }
  }
  if (!a.final_state.data) return;
#pragma omp parallel for collapse(3)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) {
      for (int d = 0; d < a.Dk; ++d) state_row(a, b, h, d);
    }
  }
}

void recurrent_double(const FloatArguments& a) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) recurrence(a, b, h);
  }
}

}  // namespace tutorial::linear_attention
