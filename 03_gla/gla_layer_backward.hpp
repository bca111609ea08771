#pragma once
/// @file
/// The gradients of the operator `gla_layer`, as `--backward` computes them: of x and of every weight.
///
/// From dy, with n = o / sqrt(mean(o^2) + eps) and s = z sigmoid(z), each head by itself:
///
///     dWo = dy^T u                du = dy Wo
///     dw  = the sum of du . n . s over positions and heads        dz = du . n . w . (sigmoid(z) + s (1 - sigmoid(z)))
///     dn  = du . w . s            do = (dn - n mean(dn . n)) / sqrt(mean(o^2) + eps)
///     dq, dk, dv, dg = gla --backward (q, k, v, g, do)
///     dlogits = dg (1 - sigmoid(logits)) / normalizer             dbias = the sum of dlogits over positions
///     dW2 = dlogits^T (x W1^T)    dlow = dlogits W2               dW1 = dlow^T x
///     dWq = dq^T x,  dWk = dk^T x,  dWv = dv^T x,  dWz = dz^T x
///     dx  = dq Wq + dk Wk + dv Wv + dz Wz + dlow W1
///
/// Nothing that the layer has computed is given. Symbols, memory and errors are as in gla_layer.hpp.

#include <cstdint>

#include "03_gla/gla_layer.hpp"

namespace tutorial::gla_layer {

/// Tensors in fp32, packed, in host memory.
struct BackwardArguments {
  FloatArguments layer;  ///< its inputs; y is null
  const float* dy;       ///< [B, L, d_model]
  float* dx;             ///< [B, L, d_model]
  float* dWq;            ///< [H Dk, d_model]
  float* dWk;            ///< [H Dk, d_model]
  float* dWv;            ///< [H Dv, d_model]
  float* dWz;            ///< [H Dv, d_model]
  float* dW1;            ///< [rank, d_model]
  float* dW2;            ///< [H Dk, rank]
  float* dbias;          ///< [H Dk]
  float* dw;             ///< [Dv]
  float* dWo;            ///< [d_model, H Dv]
  /// [H Dk, d_model]: the terms of dWq and dWk that come of -n mean(dn . n), for the reference alone; else null. At the
  /// first position o is a multiple of v, n does not depend on q and k but for eps, and the terms of do cancel.
  float* dWq_subtracted;
  float* dWk_subtracted;  ///< see dWq_subtracted

  static BackwardArguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};

void backward_reference(const BackwardArguments&);  ///< in double: what the stage is checked against
void cpu_backward(const BackwardArguments&);        ///< 1: CPU: Eigen, and `chunkwise` of gla and of its gradients

// Bytes of memory beside inputs and outputs.
std::int64_t backward_reference_memory(const BackwardArguments&);
std::int64_t cpu_backward_memory(const BackwardArguments&);

}  // namespace tutorial::gla_layer
