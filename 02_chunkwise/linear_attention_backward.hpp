#pragma once
/// @file
/// The gradients of the operator `linear_attention`, as `--backward` computes them, and one declaration per stage.
///
/// The inputs include the gradients of a loss with respect to o, `d_o`, and to the final state, `dfinal_state`. With
/// dS_t for the gradient with respect to S_t through everything that depends on it,
///
///     dS_t = dS_{t+1} + scale q_t^T do_t,    dS_{L+1} = dfinal_state or 0
///     dq_t = scale do_t S_t^T,    dk_t = v_t dS_t^T,    dv_t = k_t dS_t,    dinitial_state = dS_1
///
/// No stage receives results of the forward pass: S_t is computed again from q, k and v. Symbols, memory, errors and
/// requirements are as in linear_attention.hpp.
/// Source: Katharopoulos et al., arXiv 2006.16236, section 3.3.1, equations 13 to 15.

#include <cuda_bf16.h>

#include <cstdint>
#include <string>

#include "common/view.hpp"

namespace tutorial::linear_attention {

/// @tparam T the element type of q, k, v, do and their gradients: float, or __nv_bfloat16 for the tensor-core stages.
/// States and their gradients are fp32.
template <class T>
struct BackwardArguments {
  int B, H, L, Dk, Dv;
  int C;                            ///< chunk length of `chunkwise`; the GPU stages have their own
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
using Bf16BackwardArguments = BackwardArguments<__nv_bfloat16>;  ///< all but the states in bf16

/// In double on the CPU: the reference of every stage.
void recurrent_double_backward(const FloatBackwardArguments&);

void recurrent_backward(const FloatBackwardArguments&);    ///< CPU: two passes, the second from the end
void chunkwise_backward(const FloatBackwardArguments&);    ///< CPU: the adjoint of each product of a chunk
void walks_backward(const Bf16BackwardArguments&);         ///< GPU: three walks, S and dS on the chip
void dispatch_backward(const Bf16BackwardArguments&);      ///< what a user calls
void materialized_backward(const Bf16BackwardArguments&);  ///< variant: S and dS of every chunk in device memory

// Why dispatch cannot run the problem, as a sentence, empty if it can; the kernel and plan that it chooses on this GPU,
// as text for the report; and the bytes of memory that it needs in addition to inputs and outputs. Of the stages:
// linear_attention_backward/requirements.hpp.
std::string dispatch_backward_unsupported(const Bf16BackwardArguments&);
std::string dispatch_backward_note(const Bf16BackwardArguments&);
std::int64_t dispatch_backward_memory(const Bf16BackwardArguments&);

}  // namespace tutorial::linear_attention
