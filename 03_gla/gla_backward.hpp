#pragma once
/// @file
/// The gradients of the operator `gla`, as `--backward` computes them, and one declaration per stage.
///
/// The inputs include the gradients of a loss with respect to o, `d_o`, and to the final state, `dfinal_state`. With
/// dS_t for the gradient with respect to S_t through everything that depends on it,
///
///     dS_t = scale q_t^T do_t + diag(exp(g_{t+1})) dS_{t+1},    dS_L = scale q_L^T do_L + dfinal_state
///     dq_t = scale do_t S_t^T,    dk_t = v_t dS_t^T,    dv_t = k_t dS_t
///     dg_t = exp(g_t) . (the sum of each row of S_{t-1} . dS_t)
///     dinitial_state = diag(exp(g_1)) dS_1
///
/// dg is the gradient with respect to g, the logarithm of the gates. No stage receives results of the forward pass.
/// Symbols, memory, errors and requirements are as in gla.hpp.
/// Source: Yang et al., arXiv 2312.06635, section 4.3 and appendix.

#include <cuda_bf16.h>

#include <cstdint>
#include <string>

#include "common/view.hpp"

namespace tutorial::gla {

/// @tparam T the element type of q, k, v, do and their gradients: float, or __nv_bfloat16 for the tensor-core stages.
/// g, states and their gradients are fp32.
template <class T>
struct BackwardArguments {
  int B, H, L, Dk, Dv;
  int C;                            ///< chunk length of `chunkwise`; the GPU stages have their own
  float scale;                      ///< multiplies q; not 0 on a GPU (Operator::backward)
  View<const T> q;                  ///< [B, H, L, Dk]
  View<const T> k;                  ///< [B, H, L, Dk]
  View<const T> v;                  ///< [B, H, L, Dv]
  View<const float> g;              ///< [B, H, L, Dk], <= 0, may be -inf
  View<const float> initial_state;  ///< [B, H, Dk, Dv]; data is null if S_0 = 0
  View<const T> d_o;                ///< [B, H, L, Dv]: the gradient of o
  View<const float> dfinal_state;   ///< [B, H, Dk, Dv]: that of the final state; data is null if it is 0
  View<T> dq;                       ///< [B, H, L, Dk]
  View<T> dk;                       ///< [B, H, L, Dk]
  View<T> dv;                       ///< [B, H, L, Dv]
  View<float> dg;                   ///< [B, H, L, Dk]
  View<float> dinitial_state;       ///< [B, H, Dk, Dv]; data is null if it is unused

  static BackwardArguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatBackwardArguments = BackwardArguments<float>;         ///< tensors in fp32
using Bf16BackwardArguments = BackwardArguments<__nv_bfloat16>;  ///< all but gates and states in bf16

void recurrent_backward(const FloatBackwardArguments&);           ///< CPU, double: keeps the state of every position
void closed_form_backward(const FloatBackwardArguments&);         ///< CPU: dg from q, dq, k and dk; no state is kept
void closed_form_double_backward(const FloatBackwardArguments&);  ///< the same in double: the reference of long inputs
void chunkwise_backward(const FloatBackwardArguments&);           ///< CPU: two levels
void anchored_pairs_backward(const Bf16BackwardArguments&);  ///< GPU: states of all chunks, then all chunks at once
void one_anchor_backward(const Bf16BackwardArguments&);      ///< GPU: the pairs of a chunk at once
void dispatch_backward(const Bf16BackwardArguments&);        ///< what a user calls
void dispatch_backward(const FloatBackwardArguments&);       ///< the same for q, k, v, do and their gradients in fp32
void materialized_backward(const Bf16BackwardArguments&);    ///< variant: products by warps
void subchunk_walks_backward(const Bf16BackwardArguments&);  ///< variant: walks on tensor cores, the decays in fp32

// Why dispatch cannot run the problem, as a sentence, empty if it can; what it chooses, as text for the report; and the
// bytes of memory that it needs in addition to inputs and outputs. Of the stages: gla_backward/requirements.hpp.
std::string dispatch_backward_unsupported(const Bf16BackwardArguments&);
std::string dispatch_backward_unsupported(const FloatBackwardArguments&);
std::string dispatch_backward_note(const Bf16BackwardArguments&);
std::int64_t dispatch_backward_memory(const Bf16BackwardArguments&);

}  // namespace tutorial::gla
