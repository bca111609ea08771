/// @file
/// `direct`: the sum, computed as it is written.
///
/// Idea: a recurrence whose gates never change has a closed form. After t - j steps, u_j has decayed by r^{t-j}, which
/// depends only on the distance t - j. A convolution replaces these powers by any other numbers, the kernel.
/// Equation: y_t = sum_{j<=t} kernel_{t-j} u_j
/// Shapes: u, y [B, L, D]; kernel [L]; fp32 in host memory.
/// Thread mapping: OpenMP gives each thread one position of a batch entry at a time, in no fixed order, because late
/// positions take longer. Everything is computed in double because this is also the reference for all others.
/// Resources: D sums per thread.
/// Work: L (L + 1) operations per channel.
/// Bytes: u, kernel and y once; from the caches u L / 2 times.
/// Bound by: the cores' arithmetic.
/// Requires: L <= 16384, so that the time stays bearable.
/// Weakness: it takes O(L^2) operations. The same distances t - j occur again and again.
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

}  // namespace tutorial::convolution
