/// @file
/// Stage 2, `chunkwise`: scores inside a chunk, a state between chunks.
///
/// Idea: cut the sequence into chunks of C positions. A query's own chunk contributes to its output as in `parallel`,
/// by scores. All earlier chunks contribute as in `recurrent`, by the one state that they leave. With C = L the stage
/// is `parallel`, with C = 1 it is `recurrent`. A chunk length in between does less work than `parallel` and has larger
/// products than `recurrent`.
/// Grows out of: 1_parallel.cpp
/// Improves on: the L^2 of `parallel`.
/// Unchanged: everything is a matrix product, and heads are distributed over threads.
/// Equation:
///
///   O_n = scale (Q_n S + ((Q_n K_n^T) . M) V_n)        M_ti = 1 for i <= t, else 0
///   S  += K_n^T V_n                                    for each chunk n; S begins as S_0
///
/// Shapes: Q_n, K_n [C, Dk]; V_n, O_n [C, Dv], views of the inputs and of o; S [Dk, Dv]; fp32 in host memory. The last
/// chunk may be shorter.
/// Thread mapping: OpenMP gives each thread one head at a time. Eigen computes the scores and leaves out those above
/// the diagonal. The other products are too small for Eigen's own method, which first copies the factors. add_product()
/// (common/small_product.hpp) computes them.
/// Resources: S and the scores of one chunk per thread, 4 Dk Dv + 4 C^2 bytes, which stay in the cache.
/// Work: per position 4 Dk Dv operations with the state and (C + 1) (Dk + Dv) with the scores: the scores are the price
/// of the chunk. (P V multiplies the zeros above the diagonal, too.)
/// Bytes: q, k, v and o once. The recurrence reads and writes all of S at every position; here that happens once every
/// C positions.
/// Bound by: the cores' arithmetic.
/// Requires: nothing; any C and any L.
/// Weakness: each chunk waits for the state of the chunk before it, and there are only as many threads as cores.
/// `materialized` brings the algorithm to the GPU.
/// Sources: arXiv 2312.06635, section 2.2, "chunkwise parallel form".

#include <Eigen/Dense>
#include <algorithm>

#include "02_chunkwise/linear_attention.hpp"
#include "common/eigen_rows.hpp"
#include "common/small_product.hpp"

namespace tutorial::linear_attention {
void chunkwise(const FloatArguments& a) {
  const int longest = std::min(a.C, a.L);
#pragma omp parallel
  {
    Matrix S(a.Dk, a.Dv), scores(longest, longest);
#pragma omp for collapse(2) schedule(dynamic)
    for (int b = 0; b < a.B; ++b) {
      for (int h = 0; h < a.H; ++h) {
        if (a.initial_state.data) {
          S = rows_of<const Matrix>(a.initial_state, b, h, 0, a.Dk, a.Dv);
        } else {
          S.setZero();
        }
        for (int t = 0, C; t < a.L; t += C) {
          C = std::min(longest, a.L - t);
          const auto Q = rows_of<const Matrix>(a.q, b, h, t, C, a.Dk);
          const auto K = rows_of<const Matrix>(a.k, b, h, t, C, a.Dk);
          const auto V = rows_of<const Matrix>(a.v, b, h, t, C, a.Dv);
          auto O = rows_of<Matrix>(a.o, b, h, t, C, a.Dv);
          auto P = scores.topLeftCorner(C, C);
          P.triangularView<Eigen::Lower>() = Q * K.transpose();
          P.triangularView<Eigen::StrictlyUpper>().setZero();
          O.setZero();
          add_product(O, a.scale, Q, S);
          add_product(O, a.scale, P, V);
          add_product(S, 1, K.transpose(), V);
        }
        if (a.final_state.data) rows_of<Matrix>(a.final_state, b, h, 0, a.Dk, a.Dv) = S;
      }
    }
  }
}

}  // namespace tutorial::linear_attention
