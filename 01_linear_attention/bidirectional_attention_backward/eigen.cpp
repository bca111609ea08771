/// @file
/// `eigen`: the gradient of a matrix product is two matrix products.
///
/// Idea: the forward pass is two products, S = phi(K)^T V and O = phi(Q) S with a division. Each product passes its
/// gradient on to both of its factors. The sums run over all positions and have no direction, so the adjoint dS of the
/// state is one matrix, too.
/// Improves on: weight by weight (attention_gradients_reference.cpp), the gradients take 2 L Lk weights.
/// Equation: with c = phi(Q) z + eps and dc = -(dO . O) / c, row by row,
///
///   dphi(Q) = (dO / c) S^T + dc z^T                         [L, Dk]
///   dS = phi(Q)^T (dO / c),  dz = phi(Q)^T dc               [Dk, Dv], [Dk]
///   dphi(K) = V dS^T + 1 dz^T,  dV = phi(K) dS              [keys, Dk], [keys, Dv]
///
/// Shapes: q, dq [B, H, L, Dk]; k, dk [B, H, Lk, Dk]; v, dv [B, H, Lk, Dv]; do [B, H, L, Dv].
/// Thread mapping: OpenMP gives each thread one (batch, head) at a time.
/// Resources: phi(Q), phi(K), dO / c and the gradients of the features of one head at a time, per thread.
/// Work: (6 L + 6 Lk) Dk (Dv + 1) operations per head: S, O, dphi(Q), dS, dphi(K) and dV.
/// Bytes: inputs and outputs once; phi(Q), phi(K), dO / c, dphi(Q) and dphi(K) are written and read.
/// Bound by: the cores' arithmetic.
/// Weakness: a CPU has few cores. `state_double` is the same in double, the reference for long sequences.
/// Sources: the chain rule.

#include <Eigen/Dense>
#include <algorithm>

#include "01_linear_attention/attention.hpp"
#include "common/eigen_rows.hpp"
#include "common/feature_map.hpp"
#include "common/small_product.hpp"

namespace tutorial::bidirectional_attention_backward {
namespace {

using Floats = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class Real>
void products(const Arguments& a) {
  using Matrix = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Vector = Eigen::Matrix<Real, Eigen::Dynamic, 1>;
  const auto features = [](Real x) { return phi(x); };
  const auto slopes = [](Real x) { return dphi(x); };
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) {
      const int keys = std::min(a.Lk, a.key_lengths ? a.key_lengths[b] : a.Lk);
      const Matrix Q = rows_of<const Floats>(a.q, b, h, 0, a.L, a.Dk).template cast<Real>();
      const Matrix K = rows_of<const Floats>(a.k, b, h, 0, keys, a.Dk).template cast<Real>();
      const Matrix V = rows_of<const Floats>(a.v, b, h, 0, keys, a.Dv).template cast<Real>();
      const Matrix phi_Q = Q.unaryExpr(features), phi_K = K.unaryExpr(features);
      const Matrix S = product(phi_K.transpose(), V);
      const Vector z = phi_K.colwise().sum().transpose();
      const Vector c = (product(phi_Q, z).array() + Real(a.eps)).matrix();
      const Matrix O = c.cwiseInverse().asDiagonal() * product(phi_Q, S);
      const Matrix dO =
          c.cwiseInverse().asDiagonal() * rows_of<const Floats>(a.d_o, b, h, 0, a.L, a.Dv).template cast<Real>().eval();
      const Vector mean = dO.cwiseProduct(O).rowwise().sum();  // -dc
      const Matrix dS = product(phi_Q.transpose(), dO);
      const Vector minus_dz = product(phi_Q.transpose(), mean);

      const Matrix dq_subtracted = Q.unaryExpr(slopes).cwiseProduct(product(mean, z.transpose()));
      const Matrix dk_subtracted = K.unaryExpr(slopes) * minus_dz.asDiagonal();
      const Matrix dQ = Q.unaryExpr(slopes).cwiseProduct(product(dO, S.transpose())) - dq_subtracted;
      const Matrix dK = K.unaryExpr(slopes).cwiseProduct(product(V, dS.transpose())) - dk_subtracted;
      const auto store = [&](const View<float>& view, int rows, const Matrix& gradient) {
        if (view.data == nullptr) return;
        auto all = rows_of<Floats>(view, b, h, 0, rows, int(gradient.cols()));
        all.setZero();  // the keys beyond the key length
        all.topRows(gradient.rows()) = gradient.template cast<float>();
      };
      store(a.dq, a.L, dQ);
      store(a.dk, a.Lk, dK);
      store(a.dv, a.Lk, product(phi_K, dS));
      store(a.dq_subtracted, a.L, dq_subtracted);
      store(a.dk_subtracted, a.Lk, dk_subtracted);
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

}  // namespace tutorial::bidirectional_attention_backward
