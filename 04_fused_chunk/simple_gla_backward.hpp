#pragma once
/// @file
/// The gradients of the operator `simple_gla`, as `--backward` computes them, and one declaration per stage.
///
/// The inputs include the gradients of a loss with respect to o, `d_o`, and to the final state, `dfinal_state`. With
/// dS_t for the gradient with respect to S_t through everything that depends on it, and exp(g_{L+1}) dS_{L+1} =
/// dfinal_state or 0,
///
///     dS_t = exp(g_{t+1}) dS_{t+1} + scale q_t^T do_t,                     dinitial_state = exp(g_1) dS_1
///     dq_t = scale do_t S_t^T,    dk_t = v_t dS_t^T,    dv_t = k_t dS_t,   dg_t = <exp(g_t) S_{t-1}, dS_t>
///
/// <A, B> is the sum of all products of elements at the same place. No stage stores S_t for every t: dg follows from
/// the other gradients,
///
///     dg_t = dg_{t+1} + q_t . dq_t - k_t . dk_t,                           dg_{L+1} = <S_L, dfinal_state>
///
/// All stages leave out what is in both products, the pair of position t with itself, and what is in dg_{L+1} and k_L .
/// dk_L: it passes no gate, and where gates are strong it would be far larger than dg.
///
/// No stage receives results of the forward pass. Symbols, memory, errors and requirements are as in simple_gla.hpp.
/// Source: arXiv 2312.06635, section 4.3 (the gradient of a gate per channel, in closed form).

#include <cuda_bf16.h>

#include <cstdint>
#include <string>

#include "common/view.hpp"

namespace tutorial::simple_gla {

/// @tparam T the element type of q, k, v, do and their gradients: float, or __nv_bfloat16 for the tensor-core stages.
/// g, dg, states and their gradients are fp32.
template <class T>
struct BackwardArguments {
  int B, H, L, Dk, Dv;
  int C;                            ///< chunk length of `chunkwise`; the GPU stages have their own
  float scale;                      ///< multiplies q; not 0 on a GPU (Operator::backward)
  View<const T> q;                  ///< [B, H, L, Dk]
  View<const T> k;                  ///< [B, H, L, Dk]
  View<const T> v;                  ///< [B, H, L, Dv]
  View<const float> g;              ///< [B, H, L], <= 0, may be -inf: rows of one element
  View<const float> initial_state;  ///< [B, H, Dk, Dv]; data is null if S_0 = 0
  View<const T> d_o;                ///< [B, H, L, Dv]: the gradient of o
  View<const float> dfinal_state;   ///< [B, H, Dk, Dv]: that of the final state; data is null if it is 0
  View<T> dq;                       ///< [B, H, L, Dk]
  View<T> dk;                       ///< [B, H, L, Dk]
  View<T> dv;                       ///< [B, H, L, Dv]
  View<float> dg;                   ///< [B, H, L]
  View<float> dinitial_state;       ///< [B, H, Dk, Dv]; data is null if it is unused

  static BackwardArguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatBackwardArguments = BackwardArguments<float>;         ///< tensors in fp32
using Bf16BackwardArguments = BackwardArguments<__nv_bfloat16>;  ///< q, k, v, do and their gradients in bf16

/// In double on the CPU: the reference of every stage.
void reference_backward(const FloatBackwardArguments&);

void recurrent_backward(const FloatBackwardArguments&);        ///< CPU: two passes, the second from the end
void chunkwise_backward(const FloatBackwardArguments&);        ///< CPU: the adjoint of each product of a chunk
void walks_backward(const Bf16BackwardArguments&);             ///< GPU: three walks, S and dS on the chip
void segments_backward(const Bf16BackwardArguments&);          ///< GPU: the walks in segments, dg anew in each
void hopper_gradients_backward(const Bf16BackwardArguments&);  ///< GPU, Hopper: all walks in one launch, on warpgroups
void dispatch_backward(const Bf16BackwardArguments&);          ///< what a user calls
void pipelined_backward(const Bf16BackwardArguments&);  ///< variant: the next chunk's loads run under the products

// Why dispatch cannot run the problem, as a sentence, empty if it can; what it chooses on this GPU, as text for the
// report; and the bytes of memory that it needs in addition to inputs and outputs. Of the stages:
// simple_gla_backward/requirements.hpp.
std::string dispatch_backward_unsupported(const Bf16BackwardArguments&);
std::string dispatch_backward_note(const Bf16BackwardArguments&);
std::int64_t dispatch_backward_memory(const Bf16BackwardArguments&);
// The bytes of `recurrent`, which chapter 06 runs, too, and of `walks`.
std::int64_t recurrent_backward_memory(const FloatBackwardArguments&);
std::int64_t walks_backward_memory(const Bf16BackwardArguments&);

}  // namespace tutorial::simple_gla
