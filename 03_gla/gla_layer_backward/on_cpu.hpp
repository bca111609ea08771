#pragma once
/// @file
/// The layer's gradients on the CPU. The stage and the reference differ in the type of the arithmetic and in the stages
/// of gla that they call.

#include <Eigen/Dense>
#include <cstdint>

#include "03_gla/gla_backward.hpp"
#include "03_gla/gla_layer/on_cpu.hpp"
#include "03_gla/gla_layer_backward.hpp"

namespace tutorial::gla_layer {

/// The gradients of o and z, and the sum of that of w, from du [rows, H Dv]; see gla_layer_backward.hpp.
/// @param o,z [rows, H Dv]
/// @param dw [1, Dv], written
/// @param subtracted gets what is subtracted in do, unless it is null
template <class Scalar>
void norm_and_gate_backward(const FloatArguments& a, const Matrix<Scalar>& du, const Matrix<float>& o,
                            const Matrix<float>& z, Matrix<float>& d_o, Matrix<float>& dz, Matrix<Scalar>& dw,
                            Matrix<float>* subtracted) {
  const auto w = Eigen::Map<const Matrix<float>>(a.w, 1, a.Dv).template cast<Scalar>().array();
  Matrix<Scalar> n(1, a.Dv), s(1, a.Dv), sigmoid(1, a.Dv), dn(1, a.Dv);
  dw.setZero(1, a.Dv);
  for (Eigen::Index t = 0; t < o.rows(); ++t) {
    for (Eigen::Index h = 0; h < a.H; ++h) {
      const auto du_h = du.block(t, h * a.Dv, 1, a.Dv).array();
      const auto o_h = o.block(t, h * a.Dv, 1, a.Dv).template cast<Scalar>().array();
      const auto z_h = z.block(t, h * a.Dv, 1, a.Dv).template cast<Scalar>().array();
      const Scalar root = std::sqrt(o_h.square().mean() + Scalar(a.eps));
      sigmoid = (Scalar(1) + (-z_h).exp()).inverse();
      n = o_h / root;
      s = z_h * sigmoid.array();
      dw.array() += du_h * n.array() * s.array();
      dn = du_h * w * s.array();
      const Scalar along = dn.cwiseProduct(n).mean();
      if (subtracted) subtracted->block(t, h * a.Dv, 1, a.Dv) = (along / root * n).template cast<float>();
      d_o.block(t, h * a.Dv, 1, a.Dv) = ((dn - along * n) / root).template cast<float>();
      dz.block(t, h * a.Dv, 1, a.Dv) =
          (du_h * n.array() * w * (sigmoid.array() + s.array() * (Scalar(1) - sigmoid.array())))
              .matrix()
              .template cast<float>();
    }
  }
}

/// The call of gla's gradients inside the layer. No state has a gradient.
inline gla::FloatBackwardArguments attention_backward(const gla::FloatArguments& a, const float* d_o, float* dq,
                                                      float* dk, float* dv, float* dg) {
  return {.B = a.B,
          .H = a.H,
          .L = a.L,
          .Dk = a.Dk,
          .Dv = a.Dv,
          .C = a.C,
          .scale = a.scale,
          .q = a.q,
          .k = a.k,
          .v = a.v,
          .g = a.g,
          .initial_state = {},
          .d_o = heads(d_o, a.H, a.L, a.Dv),
          .dfinal_state = {},
          .dq = heads(dq, a.H, a.L, a.Dk),
          .dk = heads(dk, a.H, a.L, a.Dk),
          .dv = heads(dv, a.H, a.L, a.Dv),
          .dg = heads(dg, a.H, a.L, a.Dk),
          .dinitial_state = {}};
}

/// All gradients; ends its parts (common/parts.hpp) as it goes.
/// @tparam Scalar the type of the arithmetic; what gla takes and gives is fp32
/// @param attend,differentiate CPU stages of gla and of its gradients
template <class Scalar>
void layer_backward(const BackwardArguments& b, void (*attend)(const gla::FloatArguments&),
                    void (*differentiate)(const gla::FloatBackwardArguments&)) {
  const FloatArguments& a = b.layer;
  const Eigen::Index rows = Eigen::Index(a.B) * a.L;
  const auto matrix = [&](const float* data, Eigen::Index height, Eigen::Index width) {
    return Matrix<Scalar>(Eigen::Map<const Matrix<float>>(data, height, width).template cast<Scalar>());
  };
  const auto store = [](float* to, const Matrix<Scalar>& from) {
    Eigen::Map<Matrix<float>>(to, from.rows(), from.cols()) = from.template cast<float>();
  };
  const Matrix<Scalar> x = matrix(a.x, rows, a.d_model), dy = matrix(b.dy, rows, a.d_model);
  const Matrix<float> q = stored<float>(project(x, a.Wq, a.key_dim())),
                      k = stored<float>(project(x, a.Wk, a.key_dim()));
  const Matrix<float> v = stored<float>(project(x, a.Wv, a.value_dim()));
  const Matrix<float> z = stored<float>(project(x, a.Wz, a.value_dim()));
  const Matrix<Scalar> low = project(x, a.W1, a.rank);
  const Matrix<Scalar> logits = project(low, a.W2, a.key_dim());
  Matrix<Scalar> g_of_scalar = logits;
  replace_by_g(g_of_scalar, a.bias, a.normalizer);
  const Matrix<float> g = g_of_scalar.template cast<float>();
  Matrix<float> o(rows, a.value_dim());
  const gla::FloatArguments call = attention(a, q.data(), k.data(), v.data(), g.data(), o.data());
  attend(call);
  end_part("forward");

  store(b.dWo, dy.transpose() * normalize_and_gate<Scalar>(a, o, z));
  Matrix<float> d_o(rows, a.value_dim()), dz(rows, a.value_dim());
  const bool has_subtracted = b.dWq_subtracted && b.dWk_subtracted;
  Matrix<float> subtracted(has_subtracted ? rows : 0, a.value_dim());
  Matrix<Scalar> dw;
  norm_and_gate_backward<Scalar>(a, dy * matrix(a.Wo, a.d_model, a.value_dim()), o, z, d_o, dz, dw,
                                 has_subtracted ? &subtracted : nullptr);
  store(b.dw, dw);
  end_part("output, norm and gate");

  Matrix<float> dq(rows, a.key_dim()), dk(rows, a.key_dim()), dv(rows, a.value_dim()), dg(rows, a.key_dim());
  if (has_subtracted) {
    differentiate(attention_backward(call, subtracted.data(), dq.data(), dk.data(), dv.data(), dg.data()));
    store(b.dWq_subtracted, dq.template cast<Scalar>().transpose() * x);
    store(b.dWk_subtracted, dk.template cast<Scalar>().transpose() * x);
  }
  differentiate(attention_backward(call, d_o.data(), dq.data(), dk.data(), dv.data(), dg.data()));
  end_part("gla");

  // 1 - sigmoid(x) is 1 / (1 + exp(x)), also if exp(x) is infinite.
  const Matrix<Scalar> bias = matrix(a.bias, 1, a.key_dim());
  const Matrix<Scalar> dlogits = dg.template cast<Scalar>().array() /
                                 ((logits.rowwise() + bias.row(0)).array().exp() + Scalar(1)) / Scalar(a.normalizer);
  const Matrix<Scalar> dlow = dlogits * matrix(a.W2, a.key_dim(), a.rank);
  store(b.dbias, dlogits.colwise().sum());
  store(b.dW2, dlogits.transpose() * low);
  store(b.dW1, dlow.transpose() * x);
  end_part("gates");

  Matrix<Scalar> dx = dlow * matrix(a.W1, a.rank, a.d_model);
  const auto add = [&](const Matrix<float>& gradient, const float* W, float* dW) {
    const Matrix<Scalar> d = gradient.template cast<Scalar>();
    dx.noalias() += d * matrix(W, d.cols(), a.d_model);
    store(dW, d.transpose() * x);
  };
  add(dq, a.Wq, b.dWq);
  add(dk, a.Wk, b.dWk);
  add(dv, a.Wv, b.dWv);
  add(dz, a.Wz, b.dWz);
  store(b.dx, dx);
  end_part("projections");
}

}  // namespace tutorial::gla_layer
