/// @file
/// `direct`: the sum as it is written.
///
/// Idea: a recurrence whose gates never change has a closed form. What is left of u_j after t - j steps is r^{t-j}, the
/// same for all t and j with the same distance. Any other numbers can stand for these powers: the kernel.
/// Grows out of: nothing
/// Equation: y_t = sum_{j<=t} kernel_{t-j} u_j
/// Shapes: u, y [B, L, D]; kernel [L]; fp32 in host memory.
/// Thread mapping: OpenMP gives each thread one position of a batch entry at a time, in no order, as late ones take
/// longer. Everything is computed in double: this is the reference of all other stages, too.
/// Resources: D sums per thread.
/// Work: L (L + 1) operations per channel.
/// Bytes: u, kernel and y once; u from the caches L / 2 times.
/// Bound by: the cores' arithmetic.
/// Requires: L <= 16384, for patience.
/// Weakness: O(L^2). The same differences come again and again.
/// Sources: the definition.

#include <cstddef>
#include <vector>

#include "06_scan/convolution.hpp"

namespace tutorial::convolution {

void direct(const Arguments& a) {
  const auto D = std::size_t(a.D);
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int t = 0; t < a.L; ++t) {
      std::vector<double> sum(D);
      for (int j = 0; j <= t; ++j) {
        const float* u = a.u.row(b, 0, j);
        const auto weight = double(a.kernel[t - j]);
        for (std::size_t d = 0; d < D; ++d) sum[d] += weight * double(u[d]);
      }
      for (std::size_t d = 0; d < D; ++d) a.y.row(b, 0, t)[d] = float(sum[d]);
    }
  }
}

std::string direct_unsupported(const Arguments& a) {
  return a.L > 16384 ? "L > 16384: O(L^2) time" : "";
}

}  // namespace tutorial::convolution
