#pragma once
/// @file
/// What rounding does to a chunk: ways to (I + A)^-1 in a given arithmetic, and a whole sequence with some factors
/// rounded. These are the figures of docs/notebook/05_delta_rule.md.

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <string>

#include "05_deltanet_wy/chunk/cpu_chunks.hpp"
#include "common/random.hpp"
#include "common/small_float.hpp"

namespace tutorial::delta_rule {

/// What a product's factors are rounded to. Its sums are in double for fp64 and in fp32 for the others, as on tensor
/// cores.
enum class Factors { fp64, fp32, bf16, split };  ///< split: each factor as the sum of two bf16

inline double rounded(double x, Factors to) {
  const auto single = float(x);
  const auto bf16 = [](float value) { return float_from_bf16(bf16_from_float(value)); };
  switch (to) {
    case Factors::fp64:
      return x;
    case Factors::fp32:
      return double(single);
    case Factors::bf16:
      return double(bf16(single));
    case Factors::split: {
      const float high = bf16(single);
      return double(high) + double(bf16(single - high));
    }
  }
  return x;
}

inline Matrix rounded(const Matrix& X, Factors to) {
  return X.unaryExpr([=](double x) { return rounded(x, to); });
}

/// X Y, one term after the other.
inline Matrix product(const Matrix& X, const Matrix& Y, Factors factors) {
  Matrix result(X.rows(), Y.cols());
  const Matrix left = rounded(X, factors), right = rounded(Y, factors);
  for (Eigen::Index i = 0; i < X.rows(); ++i) {
    for (Eigen::Index j = 0; j < Y.cols(); ++j) {
      double exact = 0;
      float single = 0;
      for (Eigen::Index k = 0; k < X.cols(); ++k) {
        const double term = left(i, k) * right(k, j);
        exact += term;
        single = float(double(single) + term);
      }
      result(i, j) = factors == Factors::fp64 ? exact : double(single);
    }
  }
  return result;
}

/// (I + A)^-1 by forward substitution in fp32, or in double.
inline Matrix substitution(const Matrix& A, Factors factors) {
  const bool exact = factors == Factors::fp64;
  Matrix X = Matrix::Identity(A.rows(), A.cols());
  for (Eigen::Index t = 1; t < X.rows(); ++t) {
    for (Eigen::Index j = 0; j < t; ++j) {
      double sum = 0;
      for (Eigen::Index i = j; i < t; ++i) {
        sum -= A(t, i) * X(i, j);
        if (!exact) sum = double(float(sum));
      }
      X(t, j) = sum;
    }
  }
  return X;
}

/// (I + A)^-1 = (I - A)(I + A^2)(I + A^4)...: exact in numbers that do not round, since A^n = 0 for A of n rows.
inline Matrix nilpotent(const Matrix& A, Factors factors) {
  const Matrix I = Matrix::Identity(A.rows(), A.cols());
  Matrix X = I - A, power = A;
  for (Eigen::Index n = 2; n < A.rows(); n *= 2) {
    power = product(power, power, factors);
    X = product(X, I + power, factors);
  }
  return X;
}

/// (I + A)^-1 from the inverses of its 16 x 16 diagonal blocks, which `invert` finds: two of them and the block below
/// the first, X21 = -X22 A21 X11, make one of twice the size.
template <class Invert>
Matrix merged(const Matrix& A, Factors factors, Invert invert) {
  const Eigen::Index n = A.rows(), half = n / 2;
  if (n <= 16) return invert(A, factors);
  Matrix X = Matrix::Zero(n, n);
  X.topLeftCorner(half, half) = merged(A.topLeftCorner(half, half), factors, invert);
  X.bottomRightCorner(half, half) = merged(A.bottomRightCorner(half, half), factors, invert);
  const Matrix below = product(A.bottomLeftCorner(half, half), X.topLeftCorner(half, half), factors);
  X.bottomLeftCorner(half, half) = -product(X.bottomRightCorner(half, half), below, factors);
  return X;
}

inline Matrix normals(const char* name, int seed, Eigen::Index rows, Eigen::Index columns) {
  Matrix X(rows, columns);
  const Random random(std::uint64_t(seed), name);
  for (Eigen::Index i = 0; i < X.size(); ++i) X.data()[i] = random.normal(std::uint64_t(i));
  return X;
}

/// Keys of length 1 that have this cosine with each other, on average.
inline Matrix keys_with(double cosine, int seed, Eigen::Index L, Eigen::Index Dk) {
  const Matrix common = normals("common", seed, 1, Dk).rowwise().normalized();
  const Matrix own = normals("k", seed, L, Dk).rowwise().normalized();
  return (std::sqrt(1 - cosine) * own + std::sqrt(cosine) * common.replicate(L, 1)).rowwise().normalized();
}

inline Matrix lower_products(const Matrix& K, const Vector& beta) {
  Matrix A = beta.asDiagonal() * (K * K.transpose());
  A.triangularView<Eigen::Upper>().setZero();
  return A;
}

inline double relative_error(const Matrix& X, const Matrix& truth) {
  return (X - truth).norm() / truth.norm();
}

/// A sequence: q, k, v in bf16, as the stages get them.
struct Sequence {
  Matrix Q, K, V;
  Vector beta;

  Sequence(double cosine, double every_beta, int seed, Eigen::Index L = 512, Eigen::Index D = 64)
      : Q(rounded(normals("q", seed, L, D), Factors::bf16)),
        K(rounded(keys_with(cosine, seed, L, D), Factors::bf16)),
        V(rounded(normals("v", seed, L, D), Factors::bf16)),
        beta(Vector::Constant(L, every_beta)) {}
};

/// What a walk over chunks rounds its factors to; everything else is in double.
struct Roundings {
  Factors S = Factors::fp64;         ///< a copy of the state in K S and Q S
  Factors T = Factors::fp64;         ///< (I + A)^-1 diag(beta)
  Factors residual = Factors::fp64;  ///< V - K S
  Factors v_new = Factors::fp64;     ///< T (V - K S)
  Factors P = Factors::fp64;         ///< scores
  bool beta_apart = false;           ///< T is (I + A)^-1, and diag(beta) (V - K S) is rounded
};

/// All o_t without the scale, and below them the final state: as a recurrence, in double.
inline Matrix in_steps(const Sequence& x) {
  const Eigen::Index L = x.K.rows();
  Matrix S = Matrix::Zero(x.K.cols(), x.V.cols()), all(L + S.rows(), S.cols());
  for (Eigen::Index t = 0; t < L; ++t) {
    const Eigen::RowVectorXd delta = x.beta[t] * (x.V.row(t) - x.K.row(t) * S);
    S += x.K.row(t).transpose() * delta;
    all.row(t) = x.Q.row(t) * S;
  }
  all.bottomRows(S.rows()) = S;
  return all;
}

/// The same in chunks of 64, with roundings.
inline Matrix in_chunks(const Sequence& x, const Roundings& to) {
  constexpr Eigen::Index C = 64;
  const Eigen::Index L = x.K.rows();
  Matrix S = Matrix::Zero(x.K.cols(), x.V.cols()), all(L + S.rows(), S.cols());
  for (Eigen::Index t = 0; t < L; t += C) {
    const Matrix Q = x.Q.middleRows(t, C), K = x.K.middleRows(t, C), V = x.V.middleRows(t, C);
    const Vector beta = x.beta.segment(t, C);
    const Matrix diagonal = beta.asDiagonal(), copy = rounded(S, to.S);
    Matrix T = substitution(lower_products(K, beta), Factors::fp64), residual = V - K * copy;
    if (to.beta_apart) {
      residual = diagonal * residual;
    } else {
      T = T * diagonal;
    }
    const Matrix v_new = rounded(rounded(T, to.T) * rounded(residual, to.residual), to.v_new);
    Matrix P = Q * K.transpose();
    P.triangularView<Eigen::StrictlyUpper>().setZero();
    all.middleRows(t, C) = Q * copy + rounded(P, to.P) * v_new;
    S += K.transpose() * v_new;
  }
  all.bottomRows(S.rows()) = S;
  return all;
}

}  // namespace tutorial::delta_rule
