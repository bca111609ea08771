/// @file
/// `chunkwise`: the adjoint of each line of a chunk with gates.
///
/// Idea: a factor of a forward line is a factor of its adjoint line. So the table is that of `delta_rule` with the decays
/// from the start of the chunk, to its end, and from position to position.
///
///     forward                                     adjoint, from the last line to the first
///     A = tril(diag(beta) (K K^T . Gamma), -1)    Z = tril(dV v_new^T . Gamma, -1),  dK -= (Z + Z^T) K
///     Res = V - D K S                             dV = diag(beta) E,  dK -= D dV S^T,  dS -= (D K)^T dV
///     (I + A) v_new = diag(beta) Res              (I + A)^T E = dv_new
///     P = Q K^T . Gamma                           Y = scale (dO v_new^T) . Gamma,  dQ += Y K,  dK += Y^T Q
///     O = scale (D Q S + P v_new)                 dQ = scale D dO S^T,  dv_new += scale P^T dO,
///                                                 dS += scale (D Q)^T dO
///     S_n = exp(b_e) S + (D_e K)^T v_new          dS = exp(b_e) dS_n,  dv_new = D_e K dS_n,  dK = D_e v_new dS_n^T
///
/// D = diag(exp(b)), D_e = diag(exp(b_e - b)), and Gamma as in the operator's `chunkwise`. Res is `R` in the code. beta
/// is in two lines, so dbeta_t = e_t . (Res_t - sum_{i<t} Gamma_ti (k_t . k_i) v_new_i), with rows of E, Res and v_new.
/// The parenthesis is r_t of `recurrent`.
///
/// What is new is dg, and it needs no gradient of any factor. The gate of t multiplies the whole faded state S'_t =
/// exp(g_t) S_{t-1}, so dg_t = <dS'_t, S'_t>, the sum of the products of all elements. What the gate of t has and that of
/// t + 1 has not is read at t; what the latter has alone is written at t. Hence
///
///     dg_t = dg_{t+1} + q_t . dq_t + k_t . (dk_t due to the read - dk_t due to the write),
///     dg_{L+1} = <dfinal_state, S_L>
///
/// a running sum from the end, over chunks as over positions. Where gates are strong, dg is far smaller than what passes
/// none: pairs of a position with itself, which are in q_t . dq_t and in k_t . dk_t, and what the last position writes
/// to the final state, which is in dg_{L+1} and taken away at L. Both are left out. Then each term contains a gate, and
/// where all gates are equally strong, dg keeps its digits. `tensor_core` in dispatch/ sums in the same way.
/// Grows out of: 05_deltanet_wy/delta_rule_backward/2_chunkwise.cpp
/// Improves on: `recurrent` takes 3 L dependent steps. Here L / C steps in each direction depend on each other.
/// Unchanged: both walks, the order of the lines, and the triangular systems.
/// Equation: the table above, with S the state before the chunk and S_n the state after it.
/// Shapes: Q, K [C, Dk]; V, Res, v_new, E, dO [C, Dv]; A, Gamma, P, Y, Z [C, C]; S, dS [Dk, Dv]; in double, from fp32
/// in host memory. The last chunk may be shorter.
/// Thread mapping: OpenMP gives each thread one head at a time; Eigen computes the products.
/// Resources: a thread keeps the state before each chunk and after the last one, ceil(L / C) + 1 times Dk Dv numbers.
/// Work: 9 Dk Dv and about 3.5 C (Dk + Dv) multiply-adds per position.
/// Bytes: q, v, beta, g and do once or twice, k twice, each gradient once; states once.
/// Bound by: the cores' arithmetic.
/// Requires: what `chunkwise` of the operator requires.
/// Weakness: on the CPU, one thread per head.
/// Sources: arXiv 2412.06464, section 3.3, for the forward lines; their adjoints are ours.

#include <vector>

#include "05_deltanet_wy/chunk/cpu_chunks.hpp"
#include "05_deltanet_wy/gated_delta_rule_backward.hpp"

namespace tutorial::gated_delta_rule {
namespace {

using namespace delta_rule;  // chunks

constexpr double kStrongestGate = -1000;  // exp of it is 0 in double, too: sums stay finite and keep their digits

/// X below the diagonal, and on it if kOnDiagonal.
template <bool kOnDiagonal>
Matrix lower(const Matrix& X) {
  return X.triangularView < kOnDiagonal ? Eigen::Lower : Eigen::StrictlyLower > ();
}

/// What the positions of a chunk are, for both walks.
struct ChunkOf : Chunk {
  Vector factors;  // of the keys
  Matrix Gamma, KK, R, v_new;
  Vector from_start, to_end;  // D, D_e

  ChunkOf(const FloatBackwardArguments& a, int b, int h, int t, const Matrix& S) {
    const int C = std::min(a.C, a.L - t);
    Q = read_rows(a.q, b, h, t, C, a.Dk), K = read_rows(a.k, b, h, t, C, a.Dk);
    V = read_rows(a.v, b, h, t, C, a.Dv), beta = read_rows(a.beta, b, h, t, C, 1);
    factors = Vector::Ones(C);
    if (a.normalize_keys) factors = (K.rowwise().squaredNorm().array() + double(kKeyEps)).rsqrt();
    K = factors.asDiagonal() * K;
    Vector sums = read_rows(a.g, b, h, t, C, 1).cwiseMax(kStrongestGate);
    for (int i = 1; i < C; ++i) sums[i] += sums[i - 1];
    Gamma = Matrix::Zero(C, C);
    for (int i = 0; i < C; ++i) Gamma.row(i).head(i + 1) = (sums[i] - sums.head(i + 1).array()).exp();
    from_start = sums.array().exp(), to_end = (sums[C - 1] - sums.array()).exp();
    KK = lower<false>((K * K.transpose()).cwiseProduct(Gamma));
    R = V - from_start.asDiagonal() * (K * S);
    v_new = (beta.asDiagonal() * KK).eval().triangularView<Eigen::UnitLower>().solve(beta.asDiagonal() * R);
  }
  double whole() const { return from_start[from_start.size() - 1]; }  // exp(b_e)
  /// The state after the chunk, with what its first `count` positions write.
  Matrix after(const Matrix& S, Eigen::Index count) const {
    return whole() * S + (to_end.head(count).asDiagonal() * K.topRows(count)).transpose() * v_new.topRows(count);
  }
};

/// Positions of the chunk from t on whose writes a gate may reach: the last one of all writes to the final state alone.
Eigen::Index count_of_writers(const FloatBackwardArguments& a, int t, Eigen::Index C) {
  return t + C == a.L ? C - 1 : C;
}

/// The gradients of the chunk that begins at position t. dS is that of the state after it, then of the state before it.
/// @param dg that of the position after the chunk, then of its first
void backwards(const FloatBackwardArguments& a, int b, int h, int t, const Matrix& S, Matrix& dS, double& dg) {
  const ChunkOf x(a, b, h, t, S);
  const double scale = double(a.scale);
  const Matrix dO = scale * read_rows(a.d_o, b, h, t, int(x.beta.size()), a.Dv);
  const Matrix P = (x.Q * x.K.transpose()).cwiseProduct(x.Gamma);
  const Matrix dv_new = P.transpose() * dO + x.to_end.asDiagonal() * (x.K * dS);
  const Matrix A = x.beta.asDiagonal() * x.KK;
  const Matrix E = A.transpose().triangularView<Eigen::UnitUpper>().solve(dv_new), dV = x.beta.asDiagonal() * E;
  const Matrix Y = lower<false>((dO * x.v_new.transpose()).cwiseProduct(x.Gamma));
  const Matrix Z = lower<false>((dV * x.v_new.transpose()).cwiseProduct(x.Gamma));

  Matrix dQ = x.from_start.asDiagonal() * (dO * S.transpose()) + Y * x.K;
  const Matrix reading = -(x.from_start.asDiagonal() * (dV * S.transpose()) + Z * x.K);
  const Matrix writing = x.to_end.asDiagonal() * (x.v_new * dS.transpose()) + Y.transpose() * x.Q - Z.transpose() * x.K;
  Vector dgs = (x.Q.cwiseProduct(dQ) + x.K.cwiseProduct(reading)).rowwise().sum();
  const Eigen::Index writers = count_of_writers(a, t, dgs.size());
  dgs.head(writers) -= x.K.cwiseProduct(writing).topRows(writers).rowwise().sum();
  for (Eigen::Index i = dgs.size() - 1; i >= 0; --i) dgs[i] = dg += dgs[i];
  const Vector own = dO.cwiseProduct(x.v_new).rowwise().sum();  // y_t: the pairs (t, t)
  dQ += own.asDiagonal() * x.K;
  Matrix dK = reading + writing + own.asDiagonal() * x.Q;
  if (a.normalize_keys) {
    const Vector along = (dK.array() * x.K.array()).rowwise().sum();
    dK = x.factors.asDiagonal() * (dK - along.asDiagonal() * x.K);
  }
  write_rows(a.dq, b, h, t, dQ);
  write_rows(a.dk, b, h, t, dK);
  write_rows(a.dv, b, h, t, dV);
  write_rows(a.dg, b, h, t, dgs);
  write_rows(a.dbeta, b, h, t, (E.array() * (x.R - x.KK * x.v_new).array()).rowwise().sum().matrix());
  dS = x.whole() * dS + (x.from_start.asDiagonal() * x.Q).transpose() * dO -
       (x.from_start.asDiagonal() * x.K).transpose() * dV;
}

/// A state [Dk, Dv] of a head; zeros if none is given.
Matrix start_of(const FloatBackwardArguments& a, const View<const float>& state, int b, int h) {
  return state.data ? read_rows(state, b, h, 0, a.Dk, a.Dv) : Matrix::Zero(a.Dk, a.Dv);
}

/// Both walks of a head.
void walks(const FloatBackwardArguments& a, int b, int h) {
  // Before each chunk, and what of the final state has passed a gate.
  std::vector<Matrix> states{start_of(a, a.initial_state, b, h)};
  for (int t = 0; t < a.L; t += a.C) {
    const ChunkOf x(a, b, h, t, states.back());
    states.push_back(x.after(states.back(), count_of_writers(a, t, x.beta.size())));
  }
  Matrix dS = start_of(a, a.dfinal_state, b, h);
  double dg = dS.cwiseProduct(states.back()).sum();
  for (int n = int(states.size()) - 2; n >= 0; --n) backwards(a, b, h, n * a.C, states[std::size_t(n)], dS, dg);
  if (a.dinitial_state.data) write_rows(a.dinitial_state, b, h, 0, dS);
}

}  // namespace

void chunkwise_backward(const FloatBackwardArguments& a) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) walks(a, b, h);
  }
}

}  // namespace tutorial::gated_delta_rule
