#pragma once
/// @file
/// The gradients of the operator `kda`, as `--backward` computes them, and one declaration per stage.
///
/// The inputs include the gradients of a loss with respect to o, `d_o`, and to the final state, `dfinal_state`. With
/// dS_t for the gradient with respect to S_t through everything that depends on it, R_t for the state after the gates
/// of t and before its write, and r_t for what is wrong with the answer of R_t to k_t,
///
///     R_t  = diag(exp(g_t)) S_{t-1},   r_t = v_t - k_t R_t,   S_t = R_t + beta_t k_t^T r_t
///     dS_t = diag(exp(g_{t+1})) dR_{t+1} + scale q_t^T do_t,    at t = L the first term is dfinal_state or 0
///     dv_t = beta_t k_t dS_t,   dR_t = dS_t - k_t^T dv_t
///     dq_t = scale do_t S_t^T,   dbeta_t = (k_t dS_t) . r_t,   dk_t = beta_t r_t dS_t^T - dv_t R_t^T
///     dg_t = the sums over the rows of dR_t . R_t,   dinitial_state = diag(exp(g_1)) dR_1
///
/// With `normalize_keys` these are the gradients for y_t = f_t k_t, where f_t = (k_t . k_t + kKeyEps)^(-1/2), and the
/// gradient for k_t is dk_t = f_t (dy_t - (dy_t . y_t) y_t).
///
/// No stage receives results of the forward pass. Symbols, memory, errors and requirements are as in kda.hpp.
/// Source: arXiv 2510.26692, equation 1; its adjoint step by step.

#include <cstdint>

#include "common/view.hpp"

namespace tutorial::kda {

/// Tensors in fp32.
struct FloatBackwardArguments {
  int B, H, L, Dk, Dv;
  int C;                            ///< chunk length of `chunkwise`
  float scale;                      ///< multiplies q
  bool normalize_keys;              ///< k is scaled to length 1 first
  View<const float> q;              ///< [B, H, L, Dk]
  View<const float> k;              ///< [B, H, L, Dk]
  View<const float> v;              ///< [B, H, L, Dv]
  View<const float> g;              ///< [B, H, L, Dk], <= 0
  View<const float> beta;           ///< [B, H, L], in [0, 1]: rows of one element
  View<const float> initial_state;  ///< [B, H, Dk, Dv]; data is null if S_0 = 0
  View<const float> d_o;            ///< [B, H, L, Dv]: the gradient of o
  View<const float> dfinal_state;   ///< [B, H, Dk, Dv]: that of the final state; data is null if it is 0
  View<float> dq;                   ///< [B, H, L, Dk]
  View<float> dk;                   ///< [B, H, L, Dk]
  View<float> dv;                   ///< [B, H, L, Dv]
  View<float> dg;                   ///< [B, H, L, Dk]
  View<float> dbeta;                ///< [B, H, L]: rows of one element
  View<float> dinitial_state;       ///< [B, H, Dk, Dv]; data is null if it is unused

  static FloatBackwardArguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};

void recurrent_backward(const FloatBackwardArguments&);  ///< 1: CPU, double: what every stage is checked against
void chunkwise_backward(const FloatBackwardArguments&);  ///< 2: CPU, double: the adjoint of each line of a chunk

// Bytes of memory that a stage needs in addition to its inputs and outputs.
std::int64_t recurrent_backward_memory(const FloatBackwardArguments&);
std::int64_t chunkwise_backward_memory(const FloatBackwardArguments&);

}  // namespace tutorial::kda
