/// @file
/// Stage 3, `recurrent_eigen`: the recurrence as it stands in the paper, and all cores.
///
/// Idea: Eigen turns the two lines of stage 2 into a rank-one update and a vector-matrix product; the B H heads share
/// nothing, so OpenMP gives each core its own.
/// Mends: stage 2 uses one core. Same: order of time steps, one state S a head.
///
///   S += k_t^T v_t                   S [Dk, Dv]
///   o_t = q_t S
///
/// Shapes, work and bytes: as stage 2; but S is walked twice a step, once a line, and stays in each core's first-level
/// cache (16 KB at Dk = Dv = 64). Limit: arithmetic of the cores; at Dk = Dv = 128 the walk through S. Weakness:
/// parallel over heads alone. A GPU has thousands of lanes; stage 4 spreads S itself. Source: as stage 2.

#include <Eigen/Dense>

#include "01_linear_attention/linear_attention.hpp"

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
