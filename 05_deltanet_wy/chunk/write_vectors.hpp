#pragma once
/// @file
/// W and U of a chunk on the CPU, for `wy` and `ut_transform`: two ways to compute them, and what a chunk does with them.

#include "05_deltanet_wy/chunk/cpu_chunks.hpp"

namespace tutorial::delta_rule {

/// What the steps of a chunk write: the state after its position t is S + sum_{i<=t} k_i^T (u_i - w_i S), with S the
/// state that the chunk starts from.
struct WriteVectors {
  Matrix W, U;  ///< [C, Dk], [C, Dv]
};

/// Computes W and U row after row, each row from those before it (`wy`): the WY representation, Bischof and Van Loan,
/// SIAM J. Sci. Stat. Comput. 8(1), 1987. K [C, Dk], V [C, Dv], beta [C].
WriteVectors write_vectors(const Matrix& K, const Matrix& V, const Vector& beta);

/// T [C, C] = (I + A)^-1 diag(beta), A = tril(diag(beta) K K^T, -1), by forward substitution; W = T K, U = T V.
/// (`ut_transform`: the UT transform, Joffrain et al., ACM TOMS 32(2), 2006.)
Matrix solve_for_T(const Matrix& K, const Vector& beta);

/// The steps of a chunk whose W and U are known: v_new = U - W S, O = Q S + ((Q K^T) . M) v_new, S += K^T v_new, M_ti =
/// 1 for i <= t. Returns O [C, Dv] before the scale, and turns S [Dk, Dv] into the state at the chunk's end. Source:
/// arXiv 2406.06484, section 3.2.
inline Matrix step_through(const Chunk& chunk, const WriteVectors& write, Matrix& S) {
  const Matrix v_new = write.U - write.W * S;
  Matrix P = chunk.Q * chunk.K.transpose();
  P.triangularView<Eigen::StrictlyUpper>().setZero();
  Matrix O = chunk.Q * S + P * v_new;
  S += chunk.K.transpose() * v_new;
  return O;
}

}  // namespace tutorial::delta_rule
