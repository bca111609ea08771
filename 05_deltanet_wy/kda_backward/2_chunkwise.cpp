/// @file
/// `chunkwise`: the adjoint of each line of a chunk.
///
/// Idea: a chunk is a triangular system and products of matrices, whose adjoints are a triangular system with the
/// transposed matrix and products again. New is the adjoint of A and P, sums of X_td K_id exp(b_td - b_id). It has the
/// same decays, so it is computed in the same two levels, and no factor is above 1. The gradient with respect to b
/// takes no products of its own: b_t multiplies the row of X at t and divides that of K at t, so db_t is the row of X
/// times its gradient minus the row of K times its own. That also holds for the rows that read and write the state.
/// dg is the sum of db from t to the end. What has passed no gate would be its largest terms, and would have to cancel:
/// the diagonal of Y, and what the last position writes to the final state. Both are left out.
///
///     forward                               adjoint, from the last line to the first
///     A = tril(diag(beta) <K, K>, -1)       Z = -tril(dV v_new^T, -1),  dK_x += <Z, .>,  dK_k += <Z^T, .>
///     Res = V - K+ S                        dV = diag(beta) E,  dK+ = -dV S^T,  dS -= K+^T dV
///     (I + A) v_new = diag(beta) Res        (I + A)^T E = dv_new,  dbeta_t = e_t . (Res_t - sum_i <K, K>_ti v_new_i)
///     P = tril(<Q, K>)                      Y = tril(scale dO v_new^T),  dQ += <Y, .>,  dK_k += <Y^T, .>
///     O = scale (Q+ S + P v_new)            dQ+ = scale dO S^T,  dv_new += scale P^T dO,  dS += scale Q+^T dO
///     S_n = diag(exp(b_end)) S + K-^T v_new dS = diag(exp(b_end)) dS_n,  dv_new = K- dS_n,  dK- = v_new dS_n^T
///
/// <X, K> are the products with decays, and <Y, .>, <Y^T, .> stand for their adjoints: the rows sum_i Y_ti K_id
/// exp(b_td - b_id) for X, and sum_t Y_ti X_td exp(b_td - b_id) for K. dK_x collects the gradients of keys in the place
/// of X and of K+, which read, and dK_k those of keys that write. Then dk = dK_x + dK_k, and
/// dg_t = dg_{t+1} + q_t . dq_t + k_t . (dK_x - dK_k)_t.
/// Grows out of: 05_deltanet_wy/delta_rule_backward/2_chunkwise.cpp
/// Improves on: `recurrent` takes 3 L dependent steps. Here L / C steps in each direction depend on each other.
/// Unchanged: both walks, the order of the lines, and the triangular systems.
/// Equation: the table above, with S the state before the chunk and S_n the state after it. Res is `R` in the code.
/// Shapes: Q, K [C, Dk]; V, Res, v_new, E, dO [C, Dv]; A, P, Y, Z [C, C]; S, dS [Dk, Dv]; in double, from fp32 in
/// host memory. The last chunk may be shorter.
/// Thread mapping: OpenMP gives each thread one head at a time; Eigen computes the products.
/// Resources: a thread keeps the state before each chunk, ceil(L / C) Dk Dv numbers.
/// Work: per position 9 Dk Dv multiply-adds with states, and within the chunk 7 (C + 1) (Dk + Dv) / 2; 59 exponentials
/// per gate at C = 64: those of five sets of products with decays, and of K+ and K- in both walks.
/// Bytes: q, v, beta and do once or twice, k and g twice, each gradient once; states once.
/// Bound by: the cores' arithmetic.
/// Requires: what `recurrent` requires; any C.
/// Weakness: one chunk after the other, also for what no other chunk waits for.
/// Sources: arXiv 2510.26692, section 3.1, line by line; the adjoint of a triangular system: M. Giles, "An extended
/// collection of matrix derivative results for forward and reverse mode algorithmic differentiation", Oxford University
/// NA-08/01, 2008, section 2.2.

#include <algorithm>
#include <vector>

#include "05_deltanet_wy/kda/cpu_decays.hpp"
#include "05_deltanet_wy/kda_backward.hpp"
#include "common/ceil_div.hpp"

namespace tutorial::kda {
namespace {

/// X below the diagonal, and on it if kOnDiagonal.
template <bool kOnDiagonal>
Matrix lower(const Matrix& X) {
  return X.triangularView < kOnDiagonal ? Eigen::Lower : Eigen::StrictlyLower > ();
}

/// The adjoint of decayed_products(X, K, b): adds to dX and dK what follows from the gradient Y of the products, which
/// is zero above the diagonal.
void add_adjoint(Matrix& dX, Matrix& dK, const Matrix& Y, const Matrix& X, const Matrix& K, const Matrix& b) {
  for (Eigen::Index cut = 0, c; cut < b.rows(); cut += c) {
    c = std::min<Eigen::Index>(kSubChunk, b.rows() - cut);
    const Matrix after = decays(b.middleRows(cut, c).rowwise() - b.row(cut));
    const Matrix before = decays(-(b.topRows(cut).rowwise() - b.row(cut)));
    const Matrix block = Y.block(cut, 0, c, cut);
    dX.middleRows(cut, c) += after.cwiseProduct(block * K.topRows(cut).cwiseProduct(before));
    dK.topRows(cut) += before.cwiseProduct(block.transpose() * X.middleRows(cut, c).cwiseProduct(after));
    for (Eigen::Index i = cut; i < cut + c; ++i) {  // key i of the sub-chunk itself with the rows from i on
      const Eigen::Index rows = cut + c - i;
      const Matrix decay = decays(b.middleRows(i, rows).rowwise() - b.row(i));
      const auto y = Y.col(i).segment(i, rows);
      dX.middleRows(i, rows) += (y * K.row(i)).cwiseProduct(decay);
      dK.row(i) += y.transpose() * X.middleRows(i, rows).cwiseProduct(decay);
    }
  }
}

/// What the positions of a chunk are, for both walks.
struct ChunkOf : Chunk {
  Vector factors;  // of the keys
  Matrix sums, from_start, to_end, KK, R, v_new;

  ChunkOf(const FloatBackwardArguments& a, int b, int h, int t, const Matrix& S) {
    const int C = std::min(a.C, a.L - t);
    Q = read_rows(a.q, b, h, t, C, a.Dk), K = read_rows(a.k, b, h, t, C, a.Dk);
    V = read_rows(a.v, b, h, t, C, a.Dv), beta = read_rows(a.beta, b, h, t, C, 1);
    factors = Vector::Ones(C);
    if (a.normalize_keys) factors = (K.rowwise().squaredNorm().array() + double(delta_rule::kKeyEps)).rsqrt();
    K = factors.asDiagonal() * K;
    sums = running_sums(read_rows(a.g, b, h, t, C, a.Dk));
    from_start = decays(sums), to_end = decays(-(sums.rowwise() - sums.row(C - 1)));
    KK = lower<false>(decayed_products(K, K, sums));
    R = V - K.cwiseProduct(from_start) * S;
    v_new = (beta.asDiagonal() * KK).eval().triangularView<Eigen::UnitLower>().solve(beta.asDiagonal() * R);
  }
  /// The state after the chunk, with what its first `count` positions write.
  Matrix after(const Matrix& S, Eigen::Index count) const {
    Matrix next = from_start.row(from_start.rows() - 1).asDiagonal() * S;
    return next + K.cwiseProduct(to_end).topRows(count).transpose() * v_new.topRows(count);
  }
};

/// Positions of the chunk from t on whose writes a gate may reach: the last one of all writes to the final state alone.
Eigen::Index count_of_writers(const FloatBackwardArguments& a, int t, Eigen::Index C) {
  return t + C == a.L ? C - 1 : C;
}

/// The gradients of the chunk that begins at position t. dS is that of the state after it, then of the state before it.
/// @param dg that of the position after the chunk, then of its first
void backwards(const FloatBackwardArguments& a, int b, int h, int t, const Matrix& S, Matrix& dS, Vector& dg) {
  const ChunkOf x(a, b, h, t, S);
  const int C = int(x.beta.size());
  const Matrix dO = double(a.scale) * read_rows(a.d_o, b, h, t, C, a.Dv);
  const Matrix P = decayed_products(x.Q, x.K, x.sums), A = x.beta.asDiagonal() * x.KK;
  const Matrix dv_new = P.transpose() * dO + x.K.cwiseProduct(x.to_end) * dS;
  const Matrix E = A.transpose().triangularView<Eigen::UnitUpper>().solve(dv_new), dV = x.beta.asDiagonal() * E;
  const Matrix Y = lower<false>(dO * x.v_new.transpose()), Z = -lower<false>(dV * x.v_new.transpose());

  Matrix dQ = x.from_start.cwiseProduct(dO * S.transpose());
  Matrix reading = -x.from_start.cwiseProduct(dV * S.transpose());   // dK_x
  Matrix writing = x.to_end.cwiseProduct(x.v_new * dS.transpose());  // dK_k
  add_adjoint(dQ, writing, Y, x.Q, x.K, x.sums);
  add_adjoint(reading, writing, Z, x.K, x.K, x.sums);
  Matrix sums = x.Q.cwiseProduct(dQ) + x.K.cwiseProduct(reading);
  const Eigen::Index writers = count_of_writers(a, t, C);
  sums.topRows(writers) -= x.K.cwiseProduct(writing).topRows(writers);
  for (Eigen::Index i = C - 1; i >= 0; --i) dg += sums.row(i).transpose(), sums.row(i) = dg.transpose();
  const Vector own = dO.cwiseProduct(x.v_new).rowwise().sum();  // the diagonal of Y
  dQ += own.asDiagonal() * x.K;
  Matrix dK = reading + writing + own.asDiagonal() * x.Q;
  if (a.normalize_keys) {
    const Vector along = (dK.array() * x.K.array()).rowwise().sum();
    dK = x.factors.asDiagonal() * (dK - along.asDiagonal() * x.K);
  }
  write_rows(a.dq, b, h, t, dQ);
  write_rows(a.dk, b, h, t, dK);
  write_rows(a.dv, b, h, t, dV);
  write_rows(a.dg, b, h, t, sums);
  write_rows(a.dbeta, b, h, t, (E.array() * (x.R - x.KK * x.v_new).array()).rowwise().sum().matrix());
  dS = x.from_start.row(C - 1).asDiagonal() * dS;
  dS += x.Q.cwiseProduct(x.from_start).transpose() * dO - x.K.cwiseProduct(x.from_start).transpose() * dV;
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
  Vector dg = (dS.array() * states.back().array()).rowwise().sum();
  for (int n = ceil_div(a.L, a.C) - 1; n >= 0; --n) backwards(a, b, h, n * a.C, states[std::size_t(n)], dS, dg);
  if (a.dinitial_state.data) write_rows(a.dinitial_state, b, h, 0, dS);
}

}  // namespace

void chunkwise_backward(const FloatBackwardArguments& a) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) walks(a, b, h);
  }
}

}  // namespace tutorial::kda
