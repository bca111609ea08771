/// @file
/// Stage 2, `chunkwise`: the adjoint of each line of a chunk.
///
/// Idea: forwards a chunk is a triangular system and some products (`residual` of the operator). The adjoint of a
/// product of two matrices, "left" and "right", is two products: the gradient for "left" is that for the product times
/// right^T, and that for "right" is left^T times that for the product. The adjoint of a triangular system is the system
/// with the transposed matrix: from (I + A) v_new = R_beta and a known dv_new follow (I + A)^T dR_beta = dv_new and dA
/// = -dR_beta v_new^T below the diagonal. Neither (I + A)^-1 nor its gradient is needed.
///
///     forward                               adjoint, from the last line to the first
///     A = tril(diag(beta) K K^T, -1)        Z = -diag(beta) dA = tril(dV v_new^T, -1),  dK -= (Z + Z^T) K
///     R = V - K S                           dV = diag(beta) E,  dK -= dV S^T,  dS -= K^T dV
///     (I + A) v_new = diag(beta) R          (I + A)^T E = dv_new
///     P = (Q K^T) . M                       Y = scale (dO v_new^T) . M,  dQ += Y K,  dK += Y^T Q
///     O = scale (Q S + P v_new)             dQ = scale dO S^T,  dv_new += scale P^T dO,  dS += scale Q^T dO
///     S_n = S + K^T v_new                   dS = dS_n,  dv_new = K dS_n,  dK = v_new dS_n^T
///
/// Here R_beta = diag(beta) R, and dR_beta is called E. beta is in two lines, so dbeta_t = e_t . (R_t - sum_{i<t}
/// (k_t . k_i) v_new_i), with the rows of E, R and v_new. The parenthesis is r_t = v_t - k_t S_{t-1}, as in
/// `recurrent`.
/// Grows out of: 05_deltanet_wy/delta_rule/4_ut_transform.cpp
/// Improves on: `recurrent` takes 3 L dependent steps. Here L / C steps in each direction depend on each other.
/// Unchanged: the walk forwards is that of `ut_transform`, with a solver in place of T.
/// Equation: the table above, with S the state before the chunk and S_n the state after it.
/// Shapes: Q, K [C, Dk]; V, R, v_new, E, dO [C, Dv]; A, P, Y, Z [C, C]; S, dS [Dk, Dv]; in double, from fp32 in
/// host memory. The last chunk may be shorter.
/// Thread mapping: OpenMP gives each thread one head at a time; Eigen computes the products.
/// Resources: a thread keeps the state before each chunk, ceil(L / C) Dk Dv numbers. A walk forwards stores them, and
/// everything else is computed in the walk backwards.
/// Work: per position 9 Dk Dv multiply-adds with states (K S and K^T v_new in the walk forwards, K S again and six more
/// in the walk backwards), and 7 (C + 1) (Dk + Dv) / 2 within the chunk.
/// Bytes: q, v, beta and do once or twice, k twice, each gradient once; states once.
/// Bound by: the cores' arithmetic.
/// Requires: what `recurrent` requires; any C.
/// Weakness: one chunk after the other, also for what no other chunk waits for: dq, dk and dbeta.
/// Sources: arXiv 2406.06484, section 3.2, line by line; the adjoint of a triangular system: M. Giles, "An extended
/// collection of matrix derivative results for forward and reverse mode algorithmic differentiation", Oxford University
/// NA-08/01, 2008, section 2.2.

#include <vector>

#include "05_deltanet_wy/chunk/cpu_chunks.hpp"
#include "05_deltanet_wy/delta_rule_backward.hpp"

namespace tutorial::delta_rule {
namespace {

/// X below the diagonal, and on it if kOnDiagonal.
template <bool kOnDiagonal>
Matrix lower(const Matrix& X) {
  return X.triangularView < kOnDiagonal ? Eigen::Lower : Eigen::StrictlyLower > ();
}

/// What the positions of a chunk are, for both walks.
struct ChunkOf : Chunk {
  Vector factors;  // of the keys
  Matrix KK, R, v_new;

  ChunkOf(const FloatBackwardArguments& a, int b, int h, int t, const Matrix& S) {
    const int C = std::min(a.C, a.L - t);
    Q = read_rows(a.q, b, h, t, C, a.Dk), K = read_rows(a.k, b, h, t, C, a.Dk);
    V = read_rows(a.v, b, h, t, C, a.Dv), beta = read_rows(a.beta, b, h, t, C, 1);
    factors = Vector::Ones(C);
    if (a.normalize_keys) factors = (K.rowwise().squaredNorm().array() + double(kKeyEps)).rsqrt();
    K = factors.asDiagonal() * K;
    KK = lower<false>(K * K.transpose());
    R = V - K * S;
    v_new = (beta.asDiagonal() * KK).eval().triangularView<Eigen::UnitLower>().solve(beta.asDiagonal() * R);
  }
};

/// The gradients of the chunk that begins at position t. dS is that of the state after it, then of the state before it.
void backwards(const FloatBackwardArguments& a, int b, int h, int t, const Matrix& S, Matrix& dS) {
  const ChunkOf x(a, b, h, t, S);
  const double scale = double(a.scale);
  const Matrix dO = scale * read_rows(a.d_o, b, h, t, int(x.beta.size()), a.Dv);
  const Matrix dv_new = lower<true>(x.Q * x.K.transpose()).transpose() * dO + x.K * dS;
  const Matrix A = x.beta.asDiagonal() * x.KK;
  const Matrix E = A.transpose().triangularView<Eigen::UnitUpper>().solve(dv_new), dV = x.beta.asDiagonal() * E;
  const Matrix Y = lower<true>(dO * x.v_new.transpose()), Z = lower<false>(dV * x.v_new.transpose());

  Matrix dK = x.v_new * dS.transpose() + Y.transpose() * x.Q - dV * S.transpose() - (Z + Z.transpose()) * x.K;
  if (a.normalize_keys) {
    const Vector along = (dK.array() * x.K.array()).rowwise().sum();
    dK = x.factors.asDiagonal() * (dK - along.asDiagonal() * x.K);
  }
  write_rows(a.dq, b, h, t, dO * S.transpose() + Y * x.K);
  write_rows(a.dk, b, h, t, dK);
  write_rows(a.dv, b, h, t, dV);
  write_rows(a.dbeta, b, h, t, (E.array() * (x.R - x.KK * x.v_new).array()).rowwise().sum().matrix());
  dS += x.Q.transpose() * dO - x.K.transpose() * dV;
}

/// A state [Dk, Dv] of a head; zeros if none is given.
Matrix start_of(const FloatBackwardArguments& a, const View<const float>& state, int b, int h) {
  return state.data ? read_rows(state, b, h, 0, a.Dk, a.Dv) : Matrix::Zero(a.Dk, a.Dv);
}

/// Both walks of a head.
void walks(const FloatBackwardArguments& a, int b, int h) {
  std::vector<Matrix> states{start_of(a, a.initial_state, b, h)};
  for (int t = 0; t + a.C < a.L; t += a.C) {
    const ChunkOf x(a, b, h, t, states.back());
    states.push_back(states.back() + x.K.transpose() * x.v_new);
  }
  Matrix dS = start_of(a, a.dfinal_state, b, h);
  for (int n = int(states.size()) - 1; n >= 0; --n) backwards(a, b, h, n * a.C, states[std::size_t(n)], dS);
  if (a.dinitial_state.data) write_rows(a.dinitial_state, b, h, 0, dS);
}

}  // namespace

void chunkwise_backward(const FloatBackwardArguments& a) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) walks(a, b, h);
  }
}

}  // namespace tutorial::delta_rule
