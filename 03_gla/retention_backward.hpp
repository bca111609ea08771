#pragma once
/// @file
/// The gradients of the operator `retention`, as `--backward` computes them. With dS_t as in gla_backward.hpp and gamma_h =
/// 1 - 2^(-5-h) for all gates of head h:
///
///     dS_t = scale q_t^T do_t + gamma_h dS_{t+1},    dS_L = scale q_L^T do_L + dfinal_state
///     dq_t = scale do_t S_t^T,    dk_t = v_t dS_t^T,    dv_t = k_t dS_t,    dinitial_state = gamma_h dS_1
///
/// Errors, sizes and bind() as in gla.hpp.

#include <cuda_bf16.h>

#include <cstdint>
#include <string>

#include "common/view.hpp"

namespace tutorial::retention {

/// @tparam T the element type of q, k, v, do and their gradients, as in gla
template <class T>
struct BackwardArguments {
  int B, H, L, Dk, Dv;
  float scale;                      ///< multiplies q; not 0 on a GPU (Operator::backward)
  View<const T> q;                  ///< [B, H, L, Dk]
  View<const T> k;                  ///< [B, H, L, Dk]
  View<const T> v;                  ///< [B, H, L, Dv]
  View<const float> initial_state;  ///< [B, H, Dk, Dv]; data is null if S_0 = 0
  View<const T> d_o;                ///< [B, H, L, Dv]: the gradient of o
  View<const float> dfinal_state;   ///< [B, H, Dk, Dv]: that of the final state; data is null if it is 0
  View<T> dq;                       ///< [B, H, L, Dk]
  View<T> dk;                       ///< [B, H, L, Dk]
  View<T> dv;                       ///< [B, H, L, Dv]
  View<float> dinitial_state;       ///< [B, H, Dk, Dv]; data is null if it is unused

  static BackwardArguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatBackwardArguments = BackwardArguments<float>;         ///< tensors in fp32
using Bf16BackwardArguments = BackwardArguments<__nv_bfloat16>;  ///< all but states in bf16

/// Two walks in double on the CPU, with the decay as it is defined: what the stage is checked against.
void recurrent_double_backward(const FloatBackwardArguments&);

/// GPU: the dispatch of gla's gradients on a table of gates.
void dispatch_backward(const Bf16BackwardArguments&);

std::string dispatch_backward_unsupported(const Bf16BackwardArguments&);  ///< why it cannot run; empty if it can
std::string dispatch_backward_note(const Bf16BackwardArguments&);         ///< what gla's dispatch picks
std::int64_t dispatch_backward_memory(const Bf16BackwardArguments&);      ///< bytes beside inputs and outputs

}  // namespace tutorial::retention
