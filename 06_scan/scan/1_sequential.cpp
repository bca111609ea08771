/// @file
/// `sequential`: a loop over time.
///
/// Idea: the recurrence of every earlier chapter, by itself: a state that fades and is added to, with one number per
/// channel. In the earlier chapters, k_t^T v_t is x_t, and the elements of the state are the channels. One product
/// computes x, and another reads y. Here x is an input and every y is an output, so no arithmetic hides the time of the
/// memory.
/// Grows out of: nothing
/// Equation:
///
///   y_t = exp(g_t) y_{t-1} + x_t,    y_0 = initial_state or 0              (g is log_decay in the code)
///   final_state = y_L,    final_log_decay = sum_t g_t
///
/// Shapes: x, y [B, H, L, D]; g [B, H, L, Dg], Dg = 1 or D; states [B, H, D]; fp32 in host memory.
/// Thread mapping: OpenMP gives each thread one (batch, head) at a time. Everything is computed in double because this
/// stage is also the reference for all others.
/// Resources: 2 numbers per channel.
/// Work: 2 operations and an exponential per step and channel.
/// Bytes: x, g and y once.
/// Bound by: exp, and after it memory.
/// Weakness: L dependent steps.
/// Source: Martin and Cundy, arXiv 1709.04057, section 2.1.

#include <cstddef>
#include <vector>

#include "06_scan/affine.hpp"
#include "06_scan/scan.hpp"

namespace tutorial::scan {
namespace {

/// y_0, one number per channel.
std::vector<double> initial(const Arguments& a, int b, int h) {
  std::vector<double> y(std::size_t(a.D), 0.0);
  for (int d = 0; d < a.D && a.initial_state.data; ++d) y[std::size_t(d)] = double(a.initial_state.row(b, h, 0)[d]);
  return y;
}

/// The gate of channel d at step t.
double gate(const Arguments& a, int b, int h, int t, int d) {
  return decay(double(a.log_decay.row(b, h, t)[a.Dg == 1 ? 0 : d]));
}

void forward(const Arguments& a, int b, int h) {
  std::vector<double> y = initial(a, b, h), sum(std::size_t(a.Dg), 0.0);
  for (int t = 0; t < a.L; ++t) {
    for (int d = 0; d < a.D; ++d) {
      double& state = y[std::size_t(d)];
      state = gate(a, b, h, t, d) * state + double(a.x.row(b, h, t)[d]);
      a.y.row(b, h, t)[d] = float(state);
    }
    for (int d = 0; d < a.Dg; ++d) sum[std::size_t(d)] += double(a.log_decay.row(b, h, t)[d]);
  }
  for (int d = 0; d < a.D && a.final_state.data; ++d) a.final_state.row(b, h, 0)[d] = float(y[std::size_t(d)]);
  for (int d = 0; d < a.Dg && a.final_log_decay.data; ++d) {
    a.final_log_decay.row(b, h, 0)[d] = float(sum[std::size_t(d)]);
  }
}

}  // namespace

void sequential(const Arguments& a) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) forward(a, b, h);
  }
}

}  // namespace tutorial::scan
