/// @file
/// `chunkwise`: chapter 03's two levels of chunks inside this chapter's inverse.
///
/// Idea: the derivation of the UT transform only uses that a step is linear in the state. With gates it goes through
/// with three kinds of rows. Where a key or a query reads the state that the chunk starts from, it is decayed from the
/// chunk's start. Where a key adds to the state at the chunk's end, it is decayed from its position to the end. And
/// where a key or a query at t meets a key at i, their product contains the decay from i to t, which differs from
/// element to element: A and P are chapter 03's scores. So they are computed as there, in two levels: sub-chunks of 16
/// share a cut that lies between i and t, which makes their scores a matrix product of factors of at most 1, and pairs
/// within a sub-chunk are computed one by one.
/// Grows out of: 05_deltanet_wy/delta_rule/4_ut_transform.cpp
/// Improves on: `recurrent` takes L steps that wait for each other.
/// Unchanged: T, and the three lines that use it. W and U are not computed: v_new = T (V - K+ S), as in delta_rule's
/// `residual`.
/// Equation:
///
///     b_t = the sum of g from the chunk's first position up to t                 the rows of b [C, Dk]; b_end the last
///     K+ = K . exp(b),  Q+ = Q . exp(b),  K- = K . exp(b_end - b)                decayed from the start, to the end
///     A_ti = beta_t sum_d K_td K_id exp(b_td - b_id),  i < t                     T = (I + A)^-1 diag(beta)
///     P_ti = sum_d Q_td K_id exp(b_td - b_id),  i <= t
///     v_new = T (V - K+ S_{n-1})
///     O_n = scale (Q+ S_{n-1} + P v_new)
///     S_n = diag(exp(b_end)) S_{n-1} + K-^T v_new
///
/// Shapes: q, k, g [B, H, L, Dk]; v, o [B, H, L, Dv]; beta [B, H, L]; S_0 and final_state [B, H, Dk, Dv]; fp32 in host
/// memory. All of a chunk is in double: here the algebra is the lesson.
/// Thread mapping: OpenMP gives each thread one head at a time. Eigen computes the products.
/// Resources: 8 (Dk Dv + 6 C Dk + 3 C Dv + 4 C^2) bytes per thread.
/// Work: that of `ut_transform` without W and U, and per gate 24 exponentials at C = 64: in A and in P each 8.5 for the
/// pairs of a sub-chunk, 1 for the row and 1.5 for the keys between sub-chunks; and 2 for the chunk's start and end.
/// Bytes: q, k, v, g, beta and o once.
/// Bound by: the cores' arithmetic.
/// Requires: what `recurrent` requires; any C, any g <= 0. No exponent is above 0.
/// Weakness: each thread computes the chunks of its head one by one.
/// Sources: arXiv 2510.26692, section 3.1, for the chunk form; arXiv 2312.06635, section 4.3, for the second level;
/// arXiv
/// 2406.06484, section 3.2, for the UT transform.

#include <algorithm>

#include "05_deltanet_wy/kda.hpp"
#include "05_deltanet_wy/kda/cpu_decays.hpp"
#include "common/parallel.hpp"

namespace tutorial::kda {

Matrix decayed_products(const Matrix& X, const Matrix& K, const Matrix& b) {
  Matrix products = Matrix::Zero(b.rows(), b.rows());
  for (Eigen::Index cut = 0, c; cut < b.rows(); cut += c) {  // the first row of each sub-chunk of X
    c = std::min<Eigen::Index>(kSubChunk, b.rows() - cut);
    const Matrix x = X.middleRows(cut, c).cwiseProduct(decays(b.middleRows(cut, c).rowwise() - b.row(cut)));
    const Matrix k = K.topRows(cut).cwiseProduct(decays(-(b.topRows(cut).rowwise() - b.row(cut))));
    products.block(cut, 0, c, cut) = x * k.transpose();
    for (Eigen::Index i = cut; i < cut + c; ++i) {  // key i of the sub-chunk itself with the rows from i on
      const Matrix decay = decays(b.middleRows(i, cut + c - i).rowwise() - b.row(i));
      products.col(i).segment(i, cut + c - i) = X.middleRows(i, cut + c - i).cwiseProduct(decay) * K.row(i).transpose();
    }
  }
  return products;
}

namespace {

/// T [C, C] = (I + A)^-1 diag(beta) by forward substitution. @param products of the keys with each other
Matrix solve_for_T(const Matrix& products, const Vector& beta) {
  const Matrix A = beta.asDiagonal() * products;
  Matrix T = beta.asDiagonal();
  for (Eigen::Index t = 1; t < T.rows(); ++t) T.row(t).head(t).noalias() = -A.row(t).head(t) * T.topLeftCorner(t, t);
  return T;
}

/// The chunks of one (batch, head).
void walk(const FloatArguments& a, int b, int h) {
  Matrix S = Matrix::Zero(a.Dk, a.Dv);
  if (a.initial_state.data) S = read_rows(a.initial_state, b, h, 0, a.Dk, a.Dv);
  for (int t = 0, C; t < a.L; t += C) {
    C = std::min(a.C, a.L - t);
    const Matrix Q = read_rows(a.q, b, h, t, C, a.Dk), V = read_rows(a.v, b, h, t, C, a.Dv);
    Matrix K = read_rows(a.k, b, h, t, C, a.Dk);
    if (a.normalize_keys) {
      const Vector lengths = (K.rowwise().squaredNorm().array() + double(kKeyEps)).sqrt();
      K = lengths.cwiseInverse().asDiagonal() * K;
    }
    const Matrix sums = running_sums(read_rows(a.g, b, h, t, C, a.Dk)), from_start = decays(sums);
    const Matrix to_end = decays(-(sums.rowwise() - sums.row(C - 1)));
    const Matrix T = solve_for_T(decayed_products(K, K, sums), read_rows(a.beta, b, h, t, C, 1));

    const Matrix v_new = T * (V - K.cwiseProduct(from_start) * S);
    const Matrix O = Q.cwiseProduct(from_start) * S + decayed_products(Q, K, sums) * v_new;
    S = from_start.row(C - 1).asDiagonal() * S;
    S += K.cwiseProduct(to_end).transpose() * v_new;
    write_rows(a.o, b, h, t, double(a.scale) * O);
  }
  if (a.final_state.data) write_rows(a.final_state, b, h, 0, S);
}

}  // namespace

void chunkwise(const FloatArguments& a) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) walk(a, b, h);
  }
}

}  // namespace tutorial::kda
