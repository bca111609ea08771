/// @file
/// `recurrent_eigen`: the recurrence as it stands in the paper, on all cores.
///
/// Idea: Eigen turns the two lines of `recurrent` into a rank-one update and a vector-matrix product. The B H heads
/// share nothing, so OpenMP gives each core its own.
/// Improves on: `recurrent` uses one core.
/// Unchanged: the order of positions, and one state S per head.
/// Equation: S_t = S_{t-1} + k_t^T v_t and o_t = q_t S_t, with S_0 = 0
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; S [Dk, Dv], one per thread.
/// Thread mapping: one thread per (batch, head) at a time.
/// Resources: S, 16 KB per thread at Dk = Dv = 64, which stays in each core's first-level cache.
/// Work: 4 Dk Dv operations per head and position. Each position passes over S twice, once for each line.
/// Bytes: q, k, v and o once.
/// Bound by: the cores' arithmetic; at Dk = Dv = 128, reading and writing S.
/// Weakness: it is parallel only over heads, but a GPU has thousands of lanes.
/// Sources: as `recurrent`.

#include <Eigen/Dense>

#include "01_linear_attention/causal_dot_product.hpp"

namespace tutorial::causal_dot_product {

void recurrent_eigen(const Arguments& a) {
  using RowVector = Eigen::RowVectorXf;
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) {
      Matrix S = Matrix::Zero(a.Dk, a.Dv);
      for (int t = 0; t < a.L; ++t) {
        const Eigen::Map<const RowVector> q(a.q.row(b, h, t), a.Dk);
        const Eigen::Map<const RowVector> k(a.k.row(b, h, t), a.Dk);
        const Eigen::Map<const RowVector> v(a.v.row(b, h, t), a.Dv);
        Eigen::Map<RowVector> o(a.o.row(b, h, t), a.Dv);
        S.noalias() += k.transpose() * v;
        o.noalias() = q * S;
      }
    }
  }
}

}  // namespace tutorial::causal_dot_product
