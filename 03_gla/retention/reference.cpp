/// @file
/// The operator in double. Written from its own definition and not from gla's, so that it checks the table of gates.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "03_gla/retention.hpp"

namespace tutorial::retention {
namespace {

/// All steps of one (batch, head).
void recurrence(const FloatArguments& a, int b, int h) {
  const double decay = 1 - std::exp2(-5.0 - h);
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
        row[j] = decay * row[j] + double(k[d]) * double(v[j]);
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

void recurrent_double(const FloatArguments& a) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) recurrence(a, b, h);
  }
}

}  // namespace tutorial::retention
