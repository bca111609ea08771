/// @file
/// Stage 1, `parallel`: the definition as two matrix products, in which no step waits for another.
///
/// Idea: without a softmax, the output takes two plain matrix products: the scores Q K^T, and their product with V.
/// Only the causal mask M stands between the two: M_ti = 1 for i <= t, and 0 above the diagonal. Matrix products are
/// what processors compute fastest.
/// Grows out of: 01_linear_attention/causal_dot_product/1_quadratic.cpp
/// Improves on: `recurrent` takes L sequential steps, each with too little work to fill a machine.
/// Unchanged: the result.
/// Equation:
///
///   P = (Q K^T) . M                 P [L, L]
///   O = scale (Q S_0 + P V)
///   S = S_0 + K^T V                 the final state
///
/// Shapes: Q, K [L, Dk]; V, O [L, Dv]; S_0, S [Dk, Dv] of each of the B H heads, fp32 in host memory.
/// Thread mapping: OpenMP gives each thread one head at a time, and Eigen computes the products. Above the diagonal
/// nothing is computed, read or written.
/// Resources: P, 4 L^2 bytes per thread.
/// Work: L (L + 1) (Dk + Dv) operations per head for the scores and 4 L Dk Dv for the two states.
/// Bytes: half of P is written and read again. From L = 2 (Dk + Dv) on, these are more bytes than those of Q, K, V and
/// O.
/// Bound by: the cores' arithmetic.
/// Requires: L <= 8192.
/// Weakness: work and memory grow with L^2. Beyond L = 4 Dk Dv / (Dk + Dv), which is 256 for Dk = Dv = 128, it does
/// more work than the recurrence. `chunkwise` combines the advantages of both.
/// Sources: arXiv 2312.06635, section 2.1, "parallel form".

#include <Eigen/Dense>

#include "02_chunkwise/linear_attention.hpp"
#include "common/eigen_rows.hpp"

namespace tutorial::linear_attention {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

}  // namespace

void parallel(const FloatArguments& a) {
#pragma omp parallel
  {
    Matrix P(a.L, a.L);
#pragma omp for collapse(2) schedule(dynamic)
    for (int b = 0; b < a.B; ++b) {
      for (int h = 0; h < a.H; ++h) {
        const auto Q = rows_of<const Matrix>(a.q, b, h, 0, a.L, a.Dk);
        const auto K = rows_of<const Matrix>(a.k, b, h, 0, a.L, a.Dk);
        const auto V = rows_of<const Matrix>(a.v, b, h, 0, a.L, a.Dv);
        auto O = rows_of<Matrix>(a.o, b, h, 0, a.L, a.Dv);
        P.triangularView<Eigen::Lower>() = a.scale * Q * K.transpose();  // the mask: a query sees no later key
        O.noalias() = P.triangularView<Eigen::Lower>() * V;
        if (a.initial_state.data) {
          O.noalias() += a.scale * Q * rows_of<const Matrix>(a.initial_state, b, h, 0, a.Dk, a.Dv);
        }
        if (a.final_state.data) {
          auto S = rows_of<Matrix>(a.final_state, b, h, 0, a.Dk, a.Dv);
          S.noalias() = K.transpose() * V;
          if (a.initial_state.data) S += rows_of<const Matrix>(a.initial_state, b, h, 0, a.Dk, a.Dv);
        }
      }
    }
  }
}

}  // namespace tutorial::linear_attention
