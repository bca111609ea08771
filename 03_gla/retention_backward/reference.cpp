/// @file
/// The gradients in double. Written from retention's own definition and not from gla's, so that it checks the table of
/// gates.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "03_gla/retention_backward.hpp"

namespace tutorial::retention {
namespace {

/// All steps of one (batch, head): S from the start, for dq, then dS from the end, for dk and dv.
void gradients(const FloatBackwardArguments& a, int b, int h) {
  const double decay = 1 - std::exp2(-5.0 - h), scale = a.scale;
  const auto Dv = std::size_t(a.Dv);
  std::vector<double> S(std::size_t(a.Dk) * Dv), dS(S.size());
  const auto load = [&](std::vector<double>& state, const View<const float>& from) {
    for (int d = 0; d < a.Dk && from.data; ++d) std::copy_n(from.row(b, h, d), Dv, &state[std::size_t(d) * Dv]);
  };
  load(S, a.initial_state);
  load(dS, a.dfinal_state);
  for (int t = 0; t < a.L; ++t) {
    const float *k = a.k.row(b, h, t), *v = a.v.row(b, h, t), *d_o = a.d_o.row(b, h, t);
    for (int d = 0; d < a.Dk; ++d) {
      double* row = &S[std::size_t(d) * Dv];
      double dq = 0;
      for (std::size_t j = 0; j < Dv; ++j) {
        row[j] = decay * row[j] + double(k[d]) * double(v[j]);
        dq += double(d_o[j]) * row[j];
      }
      a.dq.row(b, h, t)[d] = float(scale * dq);
    }
  }
  std::vector<double> dv(Dv);
  for (int t = a.L - 1; t >= 0; --t) {
    const float *q = a.q.row(b, h, t), *k = a.k.row(b, h, t), *v = a.v.row(b, h, t), *d_o = a.d_o.row(b, h, t);
    std::fill(dv.begin(), dv.end(), 0.0);
    for (int d = 0; d < a.Dk; ++d) {
      double* row = &dS[std::size_t(d) * Dv];
      double dk = 0;
      for (std::size_t j = 0; j < Dv; ++j) {
        row[j] += scale * double(q[d]) * double(d_o[j]);
        dk += double(v[j]) * row[j];
        dv[j] += double(k[d]) * row[j];
        row[j] *= decay;
      }
      a.dk.row(b, h, t)[d] = float(dk);
    }
    std::copy(dv.begin(), dv.end(), a.dv.row(b, h, t));
  }
  for (int d = 0; d < a.Dk && a.dinitial_state.data; ++d) {
    std::copy_n(&dS[std::size_t(d) * Dv], Dv, a.dinitial_state.row(b, h, d));
  }
}

}  // namespace

void recurrent_double_backward(const FloatBackwardArguments& a) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) gradients(a, b, h);
  }
}

}  // namespace tutorial::retention
