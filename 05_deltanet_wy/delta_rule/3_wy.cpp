/// @file
/// Stage 3, `wy`: the product of a chunk's matrices as I minus a sum of outer products.
///
/// Idea: Phi_t differs from I only in the directions of the t keys that made it. So Phi_t is I minus one outer product
/// for each key, Phi_t = I - sum_{i<=t} k_i^T w_i, where w_i is a row of Dk numbers. Likewise H_t = sum_{i<=t} k_i^T
/// u_i. This follows by induction. If Phi_{t-1} has this form, then
///
///     Phi_t = Phi_{t-1} - beta_t k_t^T (k_t Phi_{t-1})               which adds one more outer product, k_t^T w_t:
///     w_t = beta_t k_t Phi_{t-1} = beta_t (k_t - sum_{i<t} (k_t . k_i) w_i)
///     u_t = beta_t (v_t - k_t H_{t-1}) = beta_t (v_t - sum_{i<t} (k_t . k_i) u_i)
///
/// The state after t is Phi_t S_{n-1} + H_t = S_{n-1} + sum_{i<=t} k_i^T (u_i - w_i S_{n-1}): chapter 02's sum of outer
/// products, with u_i - w_i S_{n-1} in place of v_i. S_{n-1} is the state that chunk n starts from.
/// Grows out of: 2_dense_product.cpp
/// Improves on: `dense_product` forms matrices [Dk, Dk] and multiplies them.
/// Unchanged: what is computed.
///
/// Equation, for a whole chunk, with one row per position:
///
///     v_new = U - W S_{n-1}                                          [C, Dv]: delta_t of `recurrent`, all at once
///     O_n = scale (Q S_{n-1} + ((Q K^T) . M) v_new)                  M_ti = 1 for i <= t, else 0
///     S_n = S_{n-1} + K^T v_new
///
/// S_{n-1} is needed only in these three lines, which are matrix products.
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; beta [B, H, L]; S_0 and final_state [B, H, Dk, Dv]; fp32 in host
/// memory. W [C, Dk] and U [C, Dv] of a chunk are in double.
/// Thread mapping: a thread works on one head at a time (cpu_chunks.hpp). Eigen computes the products.
/// Resources: C (Dk + Dv) numbers for W and U instead of Dk (Dk + Dv) for Phi and H.
/// Work: multiply-adds per position: (C - 1) / 2 (2 Dk + Dv) for W and U, (C + 1) / 2 (Dk + Dv) for the scores and
/// their products with v_new, and 3 Dk Dv for the products with the state.
/// Bytes: q, k, v, beta and o once.
/// Bound by: the cores' arithmetic.
/// Requires: what `recurrent` requires.
/// Weakness: w_t and u_t depend on all rows before them, so they are computed row by row, as vectors times matrices.
/// Sources: arXiv 2406.06484, section 3.1, equation for the WY representation; Bischof and Van Loan, "The WY
/// representation for products of Householder matrices", SIAM J. Sci. Stat. Comput. 8(1), 1987.

#include "05_deltanet_wy/chunk/write_vectors.hpp"
#include "common/parallel.hpp"

namespace tutorial::delta_rule {

WriteVectors write_vectors(const Matrix& K, const Matrix& V, const Vector& beta) {
  WriteVectors write{Matrix(K.rows(), K.cols()), Matrix(V.rows(), V.cols())};
  for (Eigen::Index t = 0; t < K.rows(); ++t) {
    const Eigen::RowVectorXd similarity = K.row(t) * K.topRows(t).transpose();  // k_t . k_i for i < t
    write.W.row(t) = beta[t] * (K.row(t) - similarity * write.W.topRows(t));
    write.U.row(t) = beta[t] * (V.row(t) - similarity * write.U.topRows(t));
  }
  return write;
}

void wy(const FloatArguments& a) {
  walk_chunks(a, [](const Chunk& chunk, Matrix& S) {
    return step_through(chunk, write_vectors(chunk.K, chunk.V, chunk.beta), S);
  });
}

}  // namespace tutorial::delta_rule
