/// @file
/// `chunkwise`: the UT transform with gates.
///
/// Idea: what position i has added to the state has faded by exp(g_(i+1) + ... + g_t) when position t reads it. That is
/// one number for each pair of positions. The pair's product of keys in A and its score in P are multiplied by it. What
/// the chunk has found in the state has faded by exp(g_s + ... + g_t) from the chunk's first position s on. This is one
/// factor per row of K S and of Q S. The triangular system has the same form as before.
/// Grows out of: 05_deltanet_wy/delta_rule/4_ut_transform.cpp
/// Improves on: `recurrent` takes L dependent steps.
/// Unchanged: T from a triangular solve, W = T K and U = T V; the walk over the chunks.
///
/// Equation: with b_t = g_s + ... + g_t, the running sums of a chunk from position s to position e, and the decays
/// Gamma_ti = exp(b_t - b_i) for i <= t, else 0,
///
///     A = tril(diag(beta) (K K^T . Gamma), -1)                            [C, C]; "." multiplies element by element
///     T = (I + A)^-1 diag(beta)                                           [C, C], lower triangular
///     W = T diag(exp(b)) K,   U = T V
///     v_new = U - W S
///     O = scale (diag(exp(b)) Q S + P v_new),   P = Q K^T . Gamma
///     S = exp(b_e) S + (diag(exp(b_e - b)) K)^T v_new
///
/// Every exponent is at most 0, because a later sum is never above an earlier one. So no factor is above 1, and nothing
/// is divided by a gate. Above the diagonal of Gamma the exponent is positive and its power may be infinite, so that
/// half is not computed. The running sums are in double, and a gate is taken as at least exp(-1000), which is zero all
/// the same. So the differences are accurate to 1e-11 after any gate.
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; beta, g [B, H, L]; S_0 and final_state [B, H, Dk, Dv]; fp32 in host
/// memory. A, Gamma and T [C, C], W [C, Dk] and U [C, Dv] of a chunk are in double.
/// Thread mapping: a thread works on one head at a time (chunk/cpu_chunks.hpp). Eigen computes the products.
/// Resources: as `ut_transform`, and C^2 numbers for Gamma.
/// Work: that of `ut_transform`, and per position C / 2 + 2 exponentials and C + 2 Dk + Dv multiplications.
/// Bytes: q, k, v, beta, g and o once.
/// Bound by: the cores' arithmetic.
/// Requires: what `recurrent` requires.
/// Weakness: each thread computes the chunks of its head one by one.
/// Sources: arXiv 2412.06464, section 3.3, the chunk form; chapter 04's `chunkwise` for the decays.

#include "05_deltanet_wy/chunk/cpu_chunks.hpp"
#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "common/parallel.hpp"

namespace tutorial::gated_delta_rule {
namespace {

using delta_rule::Chunk, delta_rule::Matrix, delta_rule::Vector;

constexpr double kStrongest = -1000;

/// b of a chunk, [C].
Vector running_sums(const FloatArguments& a, const Chunk& chunk) {
  Vector b = delta_rule::read_rows(a.g, chunk.b, chunk.h, chunk.t, int(chunk.K.rows()), 1).cwiseMax(kStrongest);
  for (Eigen::Index t = 1; t < b.size(); ++t) b[t] += b[t - 1];
  return b;
}

/// Gamma of a chunk, [C, C].
Matrix pair_decays(const Vector& b) {
  Matrix Gamma = Matrix::Zero(b.size(), b.size());
  for (Eigen::Index t = 0; t < b.size(); ++t) Gamma.row(t).head(t + 1) = (b[t] - b.head(t + 1).array()).exp();
  return Gamma;
}

/// T of a chunk, [C, C], by forward substitution.
Matrix solve_for_T(const Matrix& K, const Vector& beta, const Matrix& Gamma) {
  Matrix A = beta.asDiagonal() * (K * K.transpose()).cwiseProduct(Gamma);
  A.triangularView<Eigen::Upper>().setZero();
  Matrix T = beta.asDiagonal();
  for (Eigen::Index t = 1; t < T.rows(); ++t) T.row(t).head(t).noalias() = -A.row(t).head(t) * T.topLeftCorner(t, t);
  return T;
}

}  // namespace

void chunkwise(const FloatArguments& a) {
  delta_rule::walk_chunks(a, [&](const Chunk& chunk, Matrix& S) -> Matrix {
    const Vector b = running_sums(a, chunk), from_start = b.array().exp();
    const Vector to_end = (b[b.size() - 1] - b.array()).exp();
    const Matrix Gamma = pair_decays(b);
    const Matrix T = solve_for_T(chunk.K, chunk.beta, Gamma);
    const Matrix W = T * from_start.asDiagonal() * chunk.K, U = T * chunk.V;
    const Matrix v_new = U - W * S;
    const Matrix P = (chunk.Q * chunk.K.transpose()).cwiseProduct(Gamma);
    const Matrix O = from_start.asDiagonal() * (chunk.Q * S) + P * v_new;
    S = from_start[b.size() - 1] * S + (to_end.asDiagonal() * chunk.K).transpose() * v_new;
    return O;
  });
}

}  // namespace tutorial::gated_delta_rule
