/// @file
/// Stage 4, `ut_transform`: all vectors of a chunk from one triangular matrix.
///
/// Idea: the recursions for w_t and u_t are systems of linear equations with the same matrix. With A_ti = beta_t k_t .
/// k_i for i < t and 0 elsewhere, they read W = diag(beta) K - A W and U = diag(beta) V - A U. So W = T K and U = T V
/// with one matrix T, whose size does not depend on Dk and Dv.
/// Grows out of: 3_wy.cpp
/// Improves on: in `wy` the C - 1 dependent steps work on rows of Dk + Dv numbers. Here they work on rows of at most C
/// numbers, and the work on the wide rows is two matrix products.
/// Unchanged: everything that uses W and U.
///
/// Equation:
///
///     A = tril(diag(beta) K K^T, -1)                  [C, C], strictly lower triangular
///     T = (I + A)^-1 diag(beta)                       [C, C], lower triangular
///     W = T K,   U = T V
///
/// I + A has ones on its diagonal: it is invertible for all keys. Forward substitution computes row t of T from the
/// rows above it, T_t = beta_t e_t - sum_{i<t} A_ti T_i.
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; beta [B, H, L]; S_0 and final_state [B, H, Dk, Dv]; fp32 in host
/// memory. A and T [C, C], W [C, Dk] and U [C, Dv] of a chunk are in double.
/// Thread mapping: a thread works on one head at a time (cpu_chunks.hpp). Eigen computes the products.
/// Resources: as `wy`, and C^2 numbers for T.
/// Work: that of `wy`, and per position C^2 / 6 multiply-adds for T and Dk + Dv for the products with T's diagonal.
/// Bytes: q, k, v, beta and o once.
/// Bound by: the cores' arithmetic.
/// Requires: what `recurrent` requires. How accurate T is depends on the keys: see `block_inverse` and
/// `fused` in the README.
/// Weakness: each thread computes the chunks of its head one by one.
/// Sources: arXiv 2406.06484, section 3.2, the UT transform; Joffrain et al., "Accumulating Householder
/// transformations, revisited", ACM TOMS 32(2), 2006.

#include "05_deltanet_wy/chunk/write_vectors.hpp"
#include "common/parallel.hpp"

namespace tutorial::delta_rule {

Matrix solve_for_T(const Matrix& K, const Vector& beta) {
  Matrix A = beta.asDiagonal() * (K * K.transpose());
  A.triangularView<Eigen::Upper>().setZero();
  Matrix T = beta.asDiagonal();
  for (Eigen::Index t = 1; t < T.rows(); ++t) T.row(t).head(t).noalias() = -A.row(t).head(t) * T.topLeftCorner(t, t);
  return T;
}

void ut_transform(const FloatArguments& a) {
  walk_chunks(a, [](const Chunk& chunk, Matrix& S) {
    const Matrix T = solve_for_T(chunk.K, chunk.beta);
    return step_through(chunk, {T * chunk.K, T * chunk.V}, S);
  });
}

}  // namespace tutorial::delta_rule
