/// @file
/// The sums as they are written, in double: what the stages are checked against.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "06_scan/short_convolution.hpp"

namespace tutorial::short_convolution {
namespace {

/// The row of a state that is position t < 0; null if there is none.
float* row_before(const View<float>& state, int b, int t, int W) {
  return state.data && t >= -W ? state.row(b, 0, W + t) : nullptr;
}
const float* row_before(const View<const float>& state, int b, int t, int W) {
  return state.data && t >= -W ? state.row(b, 0, W + t) : nullptr;
}

/// u at position t, which may lie before the first.
template <class A>
double input(const A& a, int b, int t, int d) {
  if (t >= 0) return double(a.u.row(b, 0, t)[d]);
  const float* row = row_before(a.initial_state, b, t, a.W);
  return row ? double(row[d]) : 0.0;
}

}  // namespace

void direct(const FloatArguments& a) {
#pragma omp parallel for collapse(2)
  for (int b = 0; b < a.B; ++b) {
    for (int t = 0; t < a.L; ++t) {
      for (int d = 0; d < a.D; ++d) {
        double sum = 0;
        for (int j = 0; j < a.W; ++j)
          sum += double(a.kernel[std::int64_t(d) * a.W + j]) * input(a, b, t - a.W + 1 + j, d);
        a.y.row(b, 0, t)[d] = float(sum);
      }
    }
  }
  for (int b = 0; b < a.B && a.final_state.data; ++b) {
    for (int i = 0; i < a.W; ++i) {
      for (int d = 0; d < a.D; ++d) a.final_state.row(b, 0, i)[d] = float(input(a, b, a.L - a.W + i, d));
    }
  }
}

void direct_backward(const FloatBackwardArguments& a) {
  // du at position t, which may lie before the first.
  const auto gradient = [&](int b, int t, int d) {
    double sum = 0;
    for (int j = 0; j < a.W; ++j) {
      const int of = t + a.W - 1 - j;
      if (of >= 0 && of < a.L) sum += double(a.kernel[std::int64_t(d) * a.W + j]) * double(a.dy.row(b, 0, of)[d]);
    }
    const int row = t - (a.L - a.W);  // of the final state
    return a.dfinal_state.data && row >= 0 ? sum + double(a.dfinal_state.row(b, 0, row)[d]) : sum;
  };
  std::vector<double> dkernel(std::size_t(a.D) * std::size_t(a.W));
#pragma omp parallel for
  for (int d = 0; d < a.D; ++d) {
    for (int b = 0; b < a.B; ++b) {
      for (int t = -a.W; t < a.L; ++t) {
        if (t >= 0) {
          a.du.row(b, 0, t)[d] = float(gradient(b, t, d));
        } else if (float* row = row_before(a.dinitial_state, b, t, a.W)) {
          row[d] = float(gradient(b, t, d));
        }
      }
      for (int t = 0; t < a.L; ++t) {
        for (int j = 0; j < a.W; ++j) {
          dkernel[std::size_t(d) * std::size_t(a.W) + std::size_t(j)] +=
              double(a.dy.row(b, 0, t)[d]) * input(a, b, t - a.W + 1 + j, d);
        }
      }
    }
  }
  std::transform(dkernel.begin(), dkernel.end(), a.dkernel, [](double x) { return float(x); });
}

}  // namespace tutorial::short_convolution
