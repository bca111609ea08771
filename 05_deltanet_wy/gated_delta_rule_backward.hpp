#pragma once
/// @file
/// The gradients of the operator `gated_delta_rule`, as `--backward` computes them, and one declaration per stage.
///
/// The inputs include the gradients of a loss with respect to o, `d_o`, and to the final state, `dfinal_state`. Let
/// S'_t = exp(g_t) S_{t-1} be the faded state, and dS_t the gradient with respect to S_t through everything that
/// depends on it. Then
///
///     r_t  = v_t - k_t S'_t                                   S_t = S'_t + beta_t k_t^T r_t
///     dS_t = exp(g_{t+1}) (dS_{t+1} - k_{t+1}^T dv_{t+1}) + scale q_t^T do_t,
///                                                             at t = L the first term is dfinal_state or 0
///     e_t  = k_t dS_t                                         dv_t = beta_t e_t
///     dq_t = scale do_t S_t^T,   dbeta_t = e_t . r_t,   dk_t = beta_t r_t dS_t^T - dv_t S'_t^T
///     dg_t = dg_{t+1} + q_t . dq_t - v_t . dv_t               at t = L the first term is <dfinal_state, S_L> or 0
///     dinitial_state = exp(g_1) (dS_1 - k_1^T dv_1)
///
/// `<X, Y>` is the sum of the products of all elements. dg_t is `<dS'_t, S'_t>`, where dS'_t = dS_t - k_t^T dv_t is the
/// gradient with respect to the faded state. The line for dg_t computes it from rows alone:
///
///     <dS'_t, S'_t> = <dS_t, S_t> - v_t . dv_t,   <dS_t, S_t> = dg_{t+1} + q_t . dq_t
///
/// With `normalize_keys` these are the gradients for y_t = f_t k_t, where f_t = (k_t . k_t + kKeyEps)^(-1/2), and the
/// gradient for k_t is dk_t = f_t (dy_t - (dy_t . y_t) y_t).
///
/// No stage receives results of the forward pass: S_t is computed again from the inputs. Symbols, memory, errors and
/// requirements are as in gated_delta_rule.hpp.
/// Source: arXiv 2412.06464, equation 10; its adjoint step by step is ours.

#include <cstdint>

#include "common/view.hpp"

namespace tutorial::gated_delta_rule {

/// All fp32.
struct BackwardArguments {
  int B, H, L, Dk, Dv;
  int C;                            ///< chunk length of `chunkwise`
  float scale;                      ///< multiplies q
  bool normalize_keys;              ///< k is scaled to length 1 first
  View<const float> q;              ///< [B, H, L, Dk]
  View<const float> k;              ///< [B, H, L, Dk]
  View<const float> v;              ///< [B, H, L, Dv]
  View<const float> beta;           ///< [B, H, L], in [0, 1]: rows of one element
  View<const float> g;              ///< [B, H, L], <= 0: rows of one element
  View<const float> initial_state;  ///< [B, H, Dk, Dv]; data is null if S_0 = 0
  View<const float> d_o;            ///< [B, H, L, Dv]: the gradient of o
  View<const float> dfinal_state;   ///< [B, H, Dk, Dv]: that of the final state; data is null if it is 0
  View<float> dq;                   ///< [B, H, L, Dk]
  View<float> dk;                   ///< [B, H, L, Dk]
  View<float> dv;                   ///< [B, H, L, Dv]
  View<float> dbeta;                ///< [B, H, L]: rows of one element
  View<float> dg;                   ///< [B, H, L]: rows of one element
  View<float> dinitial_state;       ///< [B, H, Dk, Dv]; data is null if it is unused

  static BackwardArguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};

void recurrent_backward(const BackwardArguments&);  ///< CPU, double: what every stage is checked against
void chunkwise_backward(const BackwardArguments&);  ///< CPU, double: the adjoint of each line of a chunk

// Bytes of memory that a stage needs in addition to its inputs and outputs.
std::int64_t recurrent_backward_memory(const BackwardArguments&);
std::int64_t chunkwise_backward_memory(const BackwardArguments&);

}  // namespace tutorial::gated_delta_rule
