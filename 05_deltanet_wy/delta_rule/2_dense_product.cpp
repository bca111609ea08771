/// @file
/// Stage 2, `dense_product`: what a chunk does to a state, as a matrix.
///
/// Idea: a step is linear in the state, S_t = F_t S_{t-1} + beta_t k_t^T v_t with F_t = I - beta_t k_t^T k_t, a matrix
/// [Dk, Dk]. A chunk is linear in the state, too: up to position t, its steps turn the state S_{n-1} that chunk n
/// starts from into Phi_t S_{n-1} + H_t. Phi_t and H_t do not depend on S_{n-1}, so all chunks could compute theirs at
/// once. Here they are computed exactly as the equations say.
/// Grows out of: 1_recurrent.cpp
/// Improves on: `recurrent` can compute nothing of a step before it knows the state.
/// Unchanged: the recurrence, but from Phi_0 = I and H_0 = 0 at the start of every chunk.
///
/// Equation, for positions t = 1 to C of chunk n:
///
///     F_t = I - beta_t k_t^T k_t                      [Dk, Dk]
///     Phi_t = F_t Phi_{t-1}                               [Dk, Dk]: the product of the chunk's F_1 to F_t
///     H_t = F_t H_{t-1} + beta_t k_t^T v_t            [Dk, Dv]: the state after t, had the chunk begun with zeros
///     o_t = scale (q_t Phi_t S_{n-1} + q_t H_t)         S_{n-1}: the state that the chunk starts from
///     S_n = Phi_C S_{n-1} + H_C
///
/// Chapter 03's gates are such matrices, too, but diagonal: a product of them is a vector of Dk numbers, each the
/// exponential of a sum. The matrices F_t are not diagonal and do not commute: F_2 F_1 is not F_1 F_2 unless k_1 and
/// k_2 are orthogonal or parallel.
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; beta [B, H, L]; S_0 and final_state [B, H, Dk, Dv]; fp32 in host
/// memory. F, Phi and H of a chunk are in double.
/// Thread mapping: a thread works on one head at a time (cpu_chunks.hpp). Eigen computes the products.
/// Resources: per thread, beside S: I, F, Phi and its successor, 32 Dk^2 bytes, and H twice. Computing all chunks at
/// once would take Phi and H of each chunk: at Dk = Dv = 128 and C = 64 as many numbers as its q, k, v and o.
/// Work: Dk^2 (Dk + Dv) multiply-adds per position for the two products. All work together is 87 times the 3 Dk Dv of
/// `recurrent` at Dk = Dv = 128. An implementation that exploits F_t = I - (outer product) computes F_t Phi = Phi -
/// beta_t k_t^T (k_t Phi) with 2 Dk^2 multiply-adds. But then it takes one step after the other again, and on a matrix
/// larger than the state.
/// Bytes: q, k, v, beta and o once.
/// Bound by: the cores' arithmetic.
/// Requires: what `recurrent` requires.
/// Weakness: its work, and the C dependent steps of a chunk. `wy` does not form Phi at all.
/// Source: arXiv 2406.06484, section 3.1, the product of the transition matrices.

#include "05_deltanet_wy/chunk/cpu_chunks.hpp"
#include "common/parallel.hpp"

namespace tutorial::delta_rule {

void dense_product(const FloatArguments& a) {
  walk_chunks(a, [](const Chunk& chunk, Matrix& S) {
    const Matrix I = Matrix::Identity(S.rows(), S.rows());
    Matrix Phi = I, H = Matrix::Zero(S.rows(), S.cols()), O(chunk.V.rows(), S.cols());
    for (Eigen::Index t = 0; t < chunk.K.rows(); ++t) {
      const auto k = chunk.K.row(t), q = chunk.Q.row(t), v = chunk.V.row(t);
      const double beta = chunk.beta[t];
      const Matrix F = I - beta * k.transpose() * k;
      Phi = F * Phi;
      H = F * H + beta * k.transpose() * v;
      O.row(t) = (q * Phi) * S + q * H;
    }
    S = Phi * S + H;
    return O;
  });
}

}  // namespace tutorial::delta_rule
