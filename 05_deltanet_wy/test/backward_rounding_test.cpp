/// @file
/// The figures of docs/notebook/05_delta_rule_backward.md on rounding in the gradients: which factors of a chunk's adjoint
/// bf16 may hold.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <vector>

#include "05_deltanet_wy/test/rounding.hpp"

namespace tutorial::delta_rule {
namespace {

constexpr Eigen::Index kChunk = 64;

/// What a walk over chunks and its adjoint round their factors to; everything else is in double.
struct GradientRoundings {
  Factors S = Factors::fp64;         ///< a copy of the state, in K S, dO S^T and dV S^T
  Factors dS = Factors::fp64;        ///< a copy of dS, in K dS and v_new dS^T
  Factors T = Factors::fp64;         ///< in T (V - K S) and in T^T dv_new
  Factors residual = Factors::fp64;  ///< V - K S
  Factors v_new = Factors::fp64;     ///< T (V - K S)
  Factors dv_new = Factors::fp64;    ///< P^T dO + K dS
  Factors dV = Factors::fp64;        ///< T^T dv_new
  Factors P = Factors::fp64;         ///< scores
  Factors Y = Factors::fp64;         ///< their gradient
  Factors Z = Factors::fp64;         ///< tril(dV v_new^T, -1)

  static GradientRoundings all(Factors f) { return {f, f, f, f, f, f, f, f, f, f}; }
};

/// The gradients of a sequence without scale, initial and final state.
struct Gradients {
  Matrix dQ, dK, dV, dbeta;

  explicit Gradients(const Sequence& x)
      : dQ(Matrix::Zero(x.Q.rows(), x.Q.cols())),
        dK(dQ),
        dV(Matrix::Zero(x.V.rows(), x.V.cols())),
        dbeta(Matrix::Zero(x.V.rows(), 1)) {}
};

/// As a recurrence, in double.
Gradients gradients_in_steps(const Sequence& x, const Matrix& dO) {
  const Eigen::Index L = x.K.rows();
  Gradients g(x);
  std::vector<Matrix> S{Matrix::Zero(x.K.cols(), x.V.cols())};
  Matrix r = x.V;
  for (Eigen::Index t = 0; t < L; ++t) {
    r.row(t) -= x.K.row(t) * S.back();
    S.push_back(S.back() + x.beta[t] * x.K.row(t).transpose() * r.row(t));
    g.dQ.row(t) = dO.row(t) * S.back().transpose();
  }
  Matrix dS = Matrix::Zero(x.K.cols(), x.V.cols());
  for (Eigen::Index t = L - 1; t >= 0; --t) {
    dS += x.Q.row(t).transpose() * dO.row(t);
    const Eigen::RowVectorXd e = x.K.row(t) * dS;
    g.dV.row(t) = x.beta[t] * e;
    g.dbeta(t, 0) = e.dot(r.row(t));
    g.dK.row(t) = x.beta[t] * r.row(t) * dS.transpose() - g.dV.row(t) * S[std::size_t(t)].transpose();
    dS -= x.K.row(t).transpose() * g.dV.row(t);
  }
  return g;
}

/// The same as `tensor_core` computes it, in chunks of 64, with roundings.
/// @param exact_T of each chunk
Gradients gradients_in_chunks(const Sequence& x, const Matrix& dO, const std::vector<Matrix>& exact_T,
                              const GradientRoundings& to) {
  Gradients g(x);
  const Eigen::Index L = x.K.rows();
  std::vector<Matrix> states, T, v_new;  // of each chunk, rounded
  Matrix S = Matrix::Zero(x.K.cols(), x.V.cols()), dS = S;
  for (Eigen::Index t = 0; t < L; t += kChunk) {
    const Matrix K = x.K.middleRows(t, kChunk);
    states.push_back(rounded(S, to.S));
    T.push_back(rounded(exact_T[T.size()], to.T));
    const Matrix residual = rounded(x.V.middleRows(t, kChunk) - K * states.back(), to.residual);
    v_new.push_back(rounded(T.back() * residual, to.v_new));
    S += K.transpose() * v_new.back();
  }
  for (Eigen::Index n = L / kChunk - 1; n >= 0; --n) {
    const Eigen::Index t = n * kChunk;
    const auto of = [&](const std::vector<Matrix>& all) -> const Matrix& { return all[std::size_t(n)]; };
    const Matrix Q = x.Q.middleRows(t, kChunk), K = x.K.middleRows(t, kChunk), o = dO.middleRows(t, kChunk);
    const Matrix after = rounded(dS, to.dS);
    Matrix P = Q * K.transpose(), Y = o * of(v_new).transpose();
    P.triangularView<Eigen::StrictlyUpper>().setZero();
    Y.triangularView<Eigen::StrictlyUpper>().setZero();
    const Matrix dv_new = rounded(rounded(P, to.P).transpose() * o + K * after, to.dv_new);
    const Matrix dV = rounded(of(T).transpose() * dv_new, to.dV);
    Matrix Z = dV * of(v_new).transpose();
    const Vector squares = x.beta.segment(t, kChunk).array().square();
    g.dbeta.middleRows(t, kChunk) = Z.diagonal().cwiseQuotient(squares);
    Z.triangularView<Eigen::Upper>().setZero();
    Y = rounded(Y, to.Y), Z = rounded(Z, to.Z);
    g.dV.middleRows(t, kChunk) = dV;
    g.dQ.middleRows(t, kChunk) = o * of(states).transpose() + Y * K;
    g.dK.middleRows(t, kChunk) =
        of(v_new) * after.transpose() - dV * of(states).transpose() + Y.transpose() * Q - (Z + Z.transpose()) * K;
    dS += Q.transpose() * o - K.transpose() * dV;
  }
  return g;
}

/// A sequence of 256 positions with do, its inverses and its gradients.
struct Case {
  Sequence x;
  Matrix dO;
  std::vector<Matrix> T;  ///< of each chunk
  Gradients truth;

  Case(double cosine, double beta, int seed)
      : x(cosine, beta, seed, 256),
        dO(rounded(normals("do", seed, x.V.rows(), x.V.cols()), Factors::bf16)),
        truth(gradients_in_steps(x, dO)) {
    for (Eigen::Index t = 0; t < x.K.rows(); t += kChunk) {
      const Vector of_chunk = x.beta.segment(t, kChunk);
      T.emplace_back(substitution(lower_products(x.K.middleRows(t, kChunk), of_chunk), Factors::fp64) *
                     of_chunk.asDiagonal());
    }
  }
};

/// Three draws of keys with this cosine.
std::vector<Case> cases_of(double cosine, double beta) {
  return {Case(cosine, beta, 0), Case(cosine, beta, 1), Case(cosine, beta, 2)};
}

/// The largest errors of the draws: of dq, dk, dv and dbeta.
std::array<double, 4> errors_of(const std::vector<Case>& cases, const GradientRoundings& to) {
  std::array<double, 4> worst{};
  for (const Case& c : cases) {
    const Gradients found = gradients_in_chunks(c.x, c.dO, c.T, to);
    worst[0] = std::max(worst[0], relative_error(found.dQ, c.truth.dQ));
    worst[1] = std::max(worst[1], relative_error(found.dK, c.truth.dK));
    worst[2] = std::max(worst[2], relative_error(found.dV, c.truth.dV));
    worst[3] = std::max(worst[3], relative_error(found.dbeta, c.truth.dbeta));
  }
  return worst;
}

/// A figure of the notebook: right to a factor of 2.
void expect_about(double figure, const std::array<double, 4>& measured, const char* what) {
  const double most = std::ranges::max(measured);
  std::cout << what << ": " << most << " (dq " << measured[0] << ", dk " << measured[1] << ", dv " << measured[2]
            << ", dbeta " << measured[3] << ")\n";
  EXPECT_GE(most, figure / 2) << what;
  EXPECT_LE(most, figure * 2) << what;
}

constexpr double kFresh = 0, kAlike = 0.9, kRepeated = 1;  // cosines

TEST(BackwardRoundingTest, WhichFactorItIs) {
  Eigen::setNbThreads(1);  // a product of 64 x 64 takes less time than threads take to share it
  const std::vector<Case> fresh = cases_of(kFresh, 0.9), alike = cases_of(kAlike, 0.9), one = cases_of(kRepeated, 0.99);
  for (const auto* cases : {&fresh, &alike, &one}) {
    EXPECT_LT(std::ranges::max(errors_of(*cases, {})), 1e-12) << "chunks in double are exact";
  }
  constexpr Factors kBf16 = Factors::bf16, kSplit = Factors::split;
  struct Row {
    const char* name;
    GradientRoundings to;
    double fresh, alike, repeated;  // the notebook's figures
  };
  GradientRoundings T_split = GradientRoundings::all(kBf16), four_split = T_split;
  T_split.T = four_split.T = kSplit;
  four_split.v_new = four_split.dv_new = four_split.Y = kSplit;
  const Row rows[] = {
      {"S", {.S = kBf16}, 1.4e-3, 1.4e-3, 1.5e-3},
      {"dS", {.dS = kBf16}, 1.5e-3, 1.7e-3, 4.1e-3},
      {"T", {.T = kBf16}, 4.9e-3, 1.6e-2, 5.7e-2},
      {"V - K S", {.residual = kBf16}, 1.9e-3, 1.9e-3, 2.5e-3},
      {"v_new", {.v_new = kBf16}, 2.5e-3, 3.5e-3, 1.6e-2},
      {"dv_new", {.dv_new = kBf16}, 2.9e-3, 3.8e-3, 1.5e-2},
      {"dV", {.dV = kBf16}, 2.1e-3, 2.0e-3, 2.8e-3},
      {"P", {.P = kBf16}, 1.8e-3, 3.1e-3, 2.3e-3},
      {"Y", {.Y = kBf16}, 1.7e-3, 2.9e-3, 1.4e-2},
      {"Z", {.Z = kBf16}, 1.2e-3, 6.1e-4, 1.6e-4},
      {"all", GradientRoundings::all(kBf16), 7.5e-3, 1.6e-2, 5.6e-2},
      {"all, T split", T_split, 5.0e-3, 6.0e-3, 2.0e-2},
      {"all, T, v_new, dv_new and Y split", four_split, 3.7e-3, 4.4e-3, 5.4e-3},
      {"all split", GradientRoundings::all(kSplit), 9.2e-6, 1.7e-5, 1.0e-4},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    expect_about(row.fresh, errors_of(fresh, row.to), row.name);
    expect_about(row.alike, errors_of(alike, row.to), row.name);
    expect_about(row.repeated, errors_of(one, row.to), row.name);
  }
  Eigen::setNbThreads(0);
}

}  // namespace
}  // namespace tutorial::delta_rule
