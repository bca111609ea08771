#pragma once
/// @file
/// The layer on the CPU. The stage and the reference differ in the type of the arithmetic and in the stage of gla that
/// they call.

#include <Eigen/Dense>
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "03_gla/gla_layer/heads.hpp"
#include "common/parts.hpp"

namespace tutorial::gla_layer {

/// Rows packed.
template <class Scalar>
using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// x W^T [rows, out], x [rows, in]. @param W [out, in]
template <class Scalar>
Matrix<Scalar> project(const Matrix<Scalar>& x, const float* W, int out) {
  return x * Eigen::Map<const Matrix<float>>(W, out, x.cols()).template cast<Scalar>().transpose();
}

/// Replaces logits by g = logsigmoid(logit + bias) / normalizer. The exponential is that of a number of at most 0, so
/// it cannot overflow; and both terms are at most 0, so g is.
/// @param logits [rows, H Dk]
/// @param bias [H Dk]
template <class Scalar>
void replace_by_g(Matrix<Scalar>& logits, const float* bias, float normalizer) {
  const auto bias_row = Eigen::Map<const Matrix<float>>(bias, 1, logits.cols());
#pragma omp parallel for
  for (Eigen::Index t = 0; t < logits.rows(); ++t) {
    auto row = logits.row(t).array();
    row += bias_row.template cast<Scalar>().array();
    row = (row.min(Scalar(0)) - (-row.abs()).exp().log1p()) / Scalar(normalizer);
  }
}

/// o / sqrt(mean(o^2) + eps) * w * z sigmoid(z), each head by itself. o, z and the result are [rows, H Dv].
template <class Scalar>
Matrix<Scalar> normalize_and_gate(const FloatArguments& a, const Matrix<float>& o, const Matrix<float>& z) {
  Matrix<Scalar> u(o.rows(), o.cols());
  const auto w = Eigen::Map<const Matrix<float>>(a.w, 1, a.Dv);
#pragma omp parallel for
  for (Eigen::Index t = 0; t < o.rows(); ++t) {
    for (Eigen::Index h = 0; h < a.H; ++h) {
      const auto o_h = o.block(t, h * a.Dv, 1, a.Dv).template cast<Scalar>().array();
      const auto z_h = z.block(t, h * a.Dv, 1, a.Dv).template cast<Scalar>().array();
      const Scalar root = std::sqrt(o_h.square().mean() + Scalar(a.eps));
      u.block(t, h * a.Dv, 1, a.Dv) = o_h / root * w.template cast<Scalar>().array() * z_h / (Scalar(1) + (-z_h).exp());
    }
  }
  return u;
}

/// A matrix rounded to Stored.
template <class Stored, class M>
Matrix<float> stored(const M& matrix) {
  return matrix.template cast<Stored>().template cast<float>();
}

/// The layer; ends its parts (common/parts.hpp) as it goes.
/// @tparam Scalar the type of the arithmetic
/// @tparam Stored the type that q, k, v and z are kept in: that of the stages that are checked
/// @param attend a CPU stage of gla, which takes and gives fp32
template <class Scalar, class Stored>
void layer(const FloatArguments& a, void (*attend)(const gla::FloatArguments&)) {
  const Eigen::Index rows = Eigen::Index(a.B) * a.L;
  const Matrix<Scalar> x = Eigen::Map<const Matrix<float>>(a.x, rows, a.d_model).template cast<Scalar>();
  const Matrix<float> q = stored<Stored>(project(x, a.Wq, a.key_dim()));
  const Matrix<float> k = stored<Stored>(project(x, a.Wk, a.key_dim()));
  const Matrix<float> v = stored<Stored>(project(x, a.Wv, a.value_dim()));
  const Matrix<float> z = stored<Stored>(project(x, a.Wz, a.value_dim()));
  end_part("projections");

  Matrix<Scalar> logits = project(project(x, a.W1, a.rank), a.W2, a.key_dim());
  replace_by_g(logits, a.bias, a.normalizer);
  const Matrix<float> g = logits.template cast<float>();
  end_part("gates");

  Matrix<float> o(rows, a.value_dim());
  attend(attention(a, q.data(), k.data(), v.data(), g.data(), o.data()));
  end_part("gla");

  const Matrix<Scalar> u = normalize_and_gate<Scalar>(a, o, z);
  end_part("norm and gate");

  Eigen::Map<Matrix<float>>(a.y, rows, a.d_model) = project(u, a.Wo, a.d_model).template cast<float>();
  end_part("output");
}

}  // namespace tutorial::gla_layer
