/// @file
/// `chunkwise`: the adjoint of each line of a chunk with gates.
///
/// Idea: forwards a chunk is a triangular system and some products. The adjoint of a product X = Y Z is two products,
/// dY = dX Z^T and dZ = Y^T dX. The adjoint of a triangular system is the system with the transposed matrix: from (I +
/// A) v_new = B and a known dv_new follow (I + A)^T dB = dv_new and dA = -dB v_new^T below the diagonal. A factor of
/// the forward line is a factor of its adjoint line, and no factor needs a gradient of its own: dg follows from rows,
/// as in `recurrent`.
///
///     forward                                     adjoint, from the last line to the first
///     A = tril(diag(beta) (K K^T . G), -1)        Z = tril(dV v_new^T . G, -1),  dK -= (Z + Z^T) K
///     R = V - D K S                               dV = diag(beta) E,  dK -= D dV S^T,  dS -= (D K)^T dV
///     (I + A) v_new = diag(beta) R                (I + A)^T E = dv_new
///     P = Q K^T . G                               Y = scale (dO v_new^T) . G,  dQ += Y K,  dK += Y^T Q
///     O = scale (D Q S + P v_new)                 dQ = scale D dO S^T,  dv_new += scale P^T dO,
///                                                 dS += scale (D Q)^T dO
///     S_n = exp(b_e) S + (D_e K)^T v_new          dS = exp(b_e) dS_n,  dv_new = D_e K dS_n,  dK = D_e v_new dS_n^T
///
/// D = diag(exp(b)), D_e = diag(exp(b_e - b)), and G as in the operator's `chunkwise`. beta is in two lines, so dbeta_t
/// = e_t . (R_t - sum_{i<t} G_ti (k_t . k_i) v_new_i), with rows of E, R and v_new. The parenthesis is r_t of
/// `recurrent`.
/// Grows out of: 05_deltanet_wy/gated_delta_rule/2_chunkwise.cpp
/// Improves on: `recurrent` takes 3 L dependent steps. Here L / C steps in each direction depend on each other.
/// Unchanged: the forward lines, with a solver in place of T.
/// Equation: the table above, with S the state before the chunk and S_n the state after it.
/// Shapes: Q, K [C, Dk]; V, R, v_new, E, dO [C, Dv]; A, G, P, Y, Z [C, C]; S, dS [Dk, Dv]; in double, from fp32 in host
/// memory. The last chunk may be shorter.
/// Thread mapping: OpenMP gives each thread one head at a time; Eigen computes the products.
/// Resources: the state that each chunk starts from, 8 Dk Dv bytes per chunk and thread, and what `recurrent` needs.
/// Work: 9 Dk Dv and about 3.5 C (Dk + Dv) multiply-adds per position.
/// Bytes: each input and each gradient once.
/// Bound by: the cores' arithmetic.
/// Requires: what `chunkwise` of the operator requires.
/// Weakness: on the CPU, one thread per head.
/// Sources: arXiv 2412.06464, section 3.3, for the forward lines; their adjoints are ours.

#include <vector>

#include "05_deltanet_wy/gated_delta_rule_backward/rows.hpp"
#include "common/parallel.hpp"

namespace tutorial::gated_delta_rule {
namespace {

constexpr double kStrongest = -1000;

/// What both directions need of the chunk from position t on.
struct Lines {
  Matrix Q, K, V, KK, G;  ///< KK is K K^T . G, on and below the diagonal
  Vector beta, from_start, to_end;
  double whole;  ///< exp(b_e)
  Matrix A;      ///< I + A, of which the strictly lower part is used

  Lines(const Head& x, int t, int C)
      : Q(x.q.middleRows(t, C)), K(x.k.middleRows(t, C)), V(x.v.middleRows(t, C)), beta(x.beta.segment(t, C)) {
    Vector b = x.g.segment(t, C).cwiseMax(kStrongest);
    for (int i = 1; i < C; ++i) b[i] += b[i - 1];
    G = Matrix::Zero(C, C);
    for (int i = 0; i < C; ++i) G.row(i).head(i + 1) = (b[i] - b.head(i + 1).array()).exp();
    from_start = b.array().exp();
    to_end = (b[C - 1] - b.array()).exp();
    whole = from_start[C - 1];
    KK = (K * K.transpose()).cwiseProduct(G);
    A = beta.asDiagonal() * KK;
  }
  /// V - D K S.
  Matrix residual(const Matrix& S) const { return V - from_start.asDiagonal() * (K * S); }
  /// (I + A)^-1 diag(beta) R.
  Matrix new_values(const Matrix& R) const { return A.triangularView<Eigen::UnitLower>().solve(beta.asDiagonal() * R); }
  /// S at the chunk's end.
  Matrix next_state(const Matrix& S, const Matrix& v_new) const {
    return whole * S + (to_end.asDiagonal() * K).transpose() * v_new;
  }
};

/// Fills the gradients of the chunk from position t on, and turns dS after it into dS before it.
void adjoint(Head& x, const Lines& c, const Matrix& S, Matrix& dS, int t, double scale) {
  const int C = int(c.K.rows());
  const Matrix dO = x.d_o.middleRows(t, C), R = c.residual(S), v_new = c.new_values(R);
  const Matrix P = (c.Q * c.K.transpose()).cwiseProduct(c.G);
  const Matrix dv_new = c.to_end.asDiagonal() * (c.K * dS) + scale * P.transpose() * dO;
  const Matrix E = c.A.transpose().triangularView<Eigen::UnitUpper>().solve(dv_new);
  const Matrix dV = c.beta.asDiagonal() * E;
  Matrix Z = (dV * v_new.transpose()).cwiseProduct(c.G), below = c.KK;
  Z.diagonal().setZero();
  below.diagonal().setZero();
  const Matrix Y = scale * (dO * v_new.transpose()).cwiseProduct(c.G);
  x.dbeta.segment(t, C) = E.cwiseProduct(R - below * v_new).rowwise().sum();
  x.dv.middleRows(t, C) = dV;
  x.dq.middleRows(t, C) = scale * c.from_start.asDiagonal() * (dO * S.transpose()) + Y * c.K;
  x.dk.middleRows(t, C) = c.to_end.asDiagonal() * (v_new * dS.transpose()) + Y.transpose() * c.Q -
                          c.from_start.asDiagonal() * (dV * S.transpose()) - (Z + Z.transpose()) * c.K;
  dS = c.whole * dS + (c.from_start.asDiagonal() * c.Q).transpose() * (scale * dO) -
       (c.from_start.asDiagonal() * c.K).transpose() * dV;
}

}  // namespace

void chunkwise_backward(const FloatBackwardArguments& a) {
  const int longest = std::min(a.C, a.L);
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) {
      Head x(a, b, h);
      std::vector<Matrix> states{x.S0};  // that each chunk starts from, and the final one
      for (int t = 0; t < a.L; t += longest) {
        const Lines c(x, t, std::min(longest, a.L - t));
        const Matrix& S = states.back();
        states.push_back(c.next_state(S, c.new_values(c.residual(S))));
      }
      Matrix dS = x.dSL;
      for (int n = int(states.size()) - 2; n >= 0; --n) {
        const int t = n * longest;
        adjoint(x, Lines(x, t, std::min(longest, a.L - t)), states[std::size_t(n)], dS, t, double(a.scale));
      }
      x.write(a, b, h, states.back(), dS);
    }
  }
}

std::int64_t chunkwise_backward_memory(const FloatBackwardArguments& a) {
  const std::int64_t C = std::min(a.C, a.L), states = (a.L - 1) / C + 3;
  return (head_memory(a) + 8 * (states * a.Dk * a.Dv + C * (2 * a.Dk + 6 * a.Dv + 8 * C))) * processor_count();
}

}  // namespace tutorial::gated_delta_rule
