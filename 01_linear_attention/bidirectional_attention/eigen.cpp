/// @file
/// `eigen`: without the mask there is one state for all queries, and two matrix products do everything.
///
/// Idea: every query sees every key, as in an encoder or in cross-attention. S and z do not depend on t, so nothing is
/// sequential.
/// Improves on: weight by weight (attention_reference.cpp), every query computes Lk weights.
/// Unchanged: weights, normaliser and key lengths are those of causal_attention.
/// Equation:
///
///   S = phi(K)^T V                 [Dk, Dv]
///   z = sum_i phi(k_i)             [Dk]
///   O = phi(Q) S / (phi(Q) z + eps)
///
/// Shapes: q [B, H, L, Dk]; k [B, H, Lk, Dk]; v [B, H, Lk, Dv]; o [B, H, L, Dv].
/// Thread mapping: OpenMP gives each thread one (batch, head) at a time.
/// Resources: phi(K) and phi(Q) of one head at a time, per thread.
/// Work: 2 (L + Lk) Dk (Dv + 1) operations per head.
/// Bytes: inputs and output once; phi(K) and phi(Q) are written and read.
/// Bound by: the cores' arithmetic. These are real matrix products, which Eigen blocks for the caches.
/// Weakness: a CPU has few cores, and phi(K) and phi(Q) are written to memory. `state_double` is the same in double,
/// the reference for long sequences.
/// Sources: arXiv 2006.16236, equations 5 and 6.

#include <Eigen/Dense>
#include <algorithm>

#include "01_linear_attention/attention.hpp"
#include "common/feature_map.hpp"
#include "common/small_product.hpp"

namespace tutorial::bidirectional_attention {
namespace {

template <class Real>
void products(const Arguments& a) {
  using Matrix = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Floats = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto features = [](float x) { return phi(Real(x)); };
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) {
      const int keys = std::min(a.Lk, a.key_lengths ? a.key_lengths[b] : a.Lk);
      using Rows = Eigen::Map<const Floats, 0, Eigen::OuterStride<>>;
      const Rows Q(a.q.row(b, h, 0), a.L, a.Dk, Eigen::OuterStride<>(a.q.stride_l));
      const Rows K(a.k.row(b, h, 0), keys, a.Dk, Eigen::OuterStride<>(a.k.stride_l));
      const Rows V(a.v.row(b, h, 0), keys, a.Dv, Eigen::OuterStride<>(a.v.stride_l));
      Eigen::Map<Floats, 0, Eigen::OuterStride<>> O(a.o.row(b, h, 0), a.L, a.Dv, Eigen::OuterStride<>(a.o.stride_l));
      const Matrix phi_K = K.unaryExpr(features), phi_Q = Q.unaryExpr(features);
      const Matrix S = product(phi_K.transpose(), Matrix(V.template cast<Real>()));
      const Matrix z = phi_K.colwise().sum().transpose();
      const Eigen::Array<Real, Eigen::Dynamic, 1> normaliser = product(phi_Q, z).array() + Real(a.eps);
      const Matrix numerator = product(phi_Q, S);
      O = (numerator.array().colwise() / normaliser).template cast<float>().matrix();
    }
  }
}

}  // namespace

void eigen(const Arguments& a) {
  products<float>(a);
}

void state_double(const Arguments& a) {
  products<double>(a);
}

}  // namespace tutorial::bidirectional_attention
