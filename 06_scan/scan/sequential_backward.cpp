/// @file
/// `sequential` of --backward: the adjoint of the recurrence, a loop over time from the end.
///
/// Idea: y_t passes its gradient on to x_t, and through the gate to y_{t-1}. So the gradients are a recurrence, too,
/// with dx_{L+1} = 0.
/// Equation:
///
///   dx_t = dy_t + exp(g_{t+1}) dx_{t+1}
///   dg_t = exp(g_t) dx_t y_{t-1}                                           summed over the channels if Dg = 1
///   dinitial_state = exp(g_1) dx_1
///
/// Shapes: x, dx, dy [B, H, L, D]; g, dg [B, H, L, Dg], Dg = 1 or D; states [B, H, D]; fp32 in host memory.
/// Thread mapping: OpenMP gives each thread one (batch, head) at a time. Everything is computed in double because the
/// GPU's adjoints are checked against this one.
/// Resources: y of a whole head, 8 L D bytes per thread.
/// Sources: the chain rule; Martin and Cundy, arXiv 1709.04057, section 2.1.

#include <cstddef>
#include <vector>

#include "06_scan/affine.hpp"
#include "06_scan/scan_backward.hpp"

namespace tutorial::scan {
namespace {

/// y_0, one number per channel.
std::vector<double> initial(const BackwardArguments& a, int b, int h) {
  std::vector<double> y(std::size_t(a.D), 0.0);
  for (int d = 0; d < a.D && a.initial_state.data; ++d) y[std::size_t(d)] = double(a.initial_state.row(b, h, 0)[d]);
  return y;
}

/// The gate of channel d at step t.
double gate(const BackwardArguments& a, int b, int h, int t, int d) {
  return decay(double(a.log_decay.row(b, h, t)[a.Dg == 1 ? 0 : d]));
}

void backward(const BackwardArguments& a, int b, int h) {
  const auto D = std::size_t(a.D);
  std::vector<double> before(std::size_t(a.L) * D);  // y_{t-1} at t
  std::vector<double> y = initial(a, b, h);
  for (int t = 0; t < a.L; ++t) {
    for (std::size_t d = 0; d < D; ++d) {
      before[std::size_t(t) * D + d] = y[d];
      y[d] = gate(a, b, h, t, int(d)) * y[d] + double(a.x.row(b, h, t)[d]);
    }
  }
  std::vector<double> later(D, 0.0), dg(std::size_t(a.Dg));  // later: exp(g_{t+1}) dx_{t+1}
  for (int t = a.L - 1; t >= 0; --t) {
    dg.assign(dg.size(), 0.0);
    for (std::size_t d = 0; d < D; ++d) {
      const double dx = double(a.dy.row(b, h, t)[d]) + later[d];
      a.dx.row(b, h, t)[d] = float(dx);
      later[d] = gate(a, b, h, t, int(d)) * dx;
      dg[a.Dg == 1 ? 0 : d] += later[d] * before[std::size_t(t) * D + d];
    }
    for (std::size_t d = 0; d < dg.size(); ++d) a.dlog_decay.row(b, h, t)[d] = float(dg[d]);
  }
  for (std::size_t d = 0; d < D && a.dinitial_state.data; ++d) a.dinitial_state.row(b, h, 0)[d] = float(later[d]);
}

}  // namespace

void sequential_backward(const BackwardArguments& a) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) backward(a, b, h);
  }
}

}  // namespace tutorial::scan
