#pragma once
/// @file
/// The gradients of the operator `delta_rule`, as `--backward` computes them, and one declaration per stage.
///
/// The inputs include the gradients of a loss with respect to o, `d_o`, and to the final state, `dfinal_state`. With
/// dS_t for the gradient with respect to S_t through everything that depends on it, and r_t for what is wrong with the
/// state's answer to k_t,
///
///     r_t  = v_t - k_t S_{t-1}                                delta_t = beta_t r_t
///     dS_t = (dS_{t+1} - k_{t+1}^T dv_{t+1}) + scale q_t^T do_t,    at t = L the bracket is dfinal_state or 0
///     e_t  = k_t dS_t                                         dv_t = beta_t e_t
///     dq_t = scale do_t S_t^T,   dbeta_t = e_t . r_t,   dk_t = delta_t dS_t^T - dv_t S_{t-1}^T
///     dinitial_state = dS_1 - k_1^T dv_1
///
/// With `normalize_keys` these are the gradients for y_t = f_t k_t, where f_t = (k_t . k_t + kKeyEps)^(-1/2), and the
/// gradient for k_t is dk_t = f_t (dy_t - (dy_t . y_t) y_t).
///
/// No stage receives results of the forward pass: S_t is computed again from q, k, v and beta. Symbols, memory, errors
/// and requirements are as in delta_rule.hpp.
/// Source: Yang et al., arXiv 2406.06484, section 3 and the backward pass in its appendix.

#include <cuda_bf16.h>

#include <cstdint>
#include <string>

#include "common/view.hpp"

namespace tutorial::delta_rule {

/// @tparam T the element type of q, k, v, do and their gradients: float, or __nv_bfloat16 for the tensor-core stages.
/// beta, states and their gradients are fp32.
template <class T>
struct BackwardArguments {
  int B, H, L, Dk, Dv, C;           ///< C: chunk length of `chunkwise`; the GPU stages have their own
  float scale;                      ///< multiplies q; not 0 on a GPU (Operator::backward)
  bool normalize_keys;              ///< k is scaled to length 1 first
  View<const T> q;                  ///< [B, H, L, Dk]
  View<const T> k;                  ///< [B, H, L, Dk]
  View<const T> v;                  ///< [B, H, L, Dv]
  View<const float> beta;           ///< [B, H, L], in [0, 2]: rows of one element
  View<const float> initial_state;  ///< [B, H, Dk, Dv]; data is null if S_0 = 0
  View<const T> d_o;                ///< [B, H, L, Dv]: the gradient of o
  View<const float> dfinal_state;   ///< [B, H, Dk, Dv]: that of the final state; data is null if it is 0
  View<T> dq;                       ///< [B, H, L, Dk]
  View<T> dk;                       ///< [B, H, L, Dk]
  View<T> dv;                       ///< [B, H, L, Dv]
  View<float> dbeta;                ///< [B, H, L]: rows of one element
  View<float> dinitial_state;       ///< [B, H, Dk, Dv]; data is null if it is unused
  /// [B, H, L, Dk]: for the reference, the term that dk_t subtracts: dv_t S_{t-1}^T, or f_t (dy_t . y_t) y_t with
  /// `normalize_keys`; data is null in every other call
  View<float> dk_subtracted;
  /// [B, H, L]: for the reference, the term e_t . (k_t S_{t-1}), which dbeta_t = e_t . v_t - e_t . (k_t S_{t-1})
  /// subtracts; data is null in every other call
  View<float> dbeta_subtracted;

  static BackwardArguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatBackwardArguments = BackwardArguments<float>;         ///< tensors in fp32
using Bf16BackwardArguments = BackwardArguments<__nv_bfloat16>;  ///< all but beta and the states in bf16

void recurrent_backward(const FloatBackwardArguments&);     ///< CPU, double: what every stage is checked against
void chunkwise_backward(const FloatBackwardArguments&);     ///< CPU, double: the adjoint of each line of a chunk
void walks_backward(const Bf16BackwardArguments&);          ///< GPU: two walks, then all chunks at once in fp32
void tensor_core_backward(const Bf16BackwardArguments&);    ///< GPU: two walks, then all chunks on tensor cores
void warpgroups_backward(const Bf16BackwardArguments&);     ///< GPU: by warpgroups and bulk copies, on Hopper
void dispatch_backward(const Bf16BackwardArguments&);       ///< what a user calls
void both_ends_backward(const Bf16BackwardArguments&);      ///< GPU: both walks in one launch
void longer_chunks_backward(const Bf16BackwardArguments&);  ///< Hopper: gradients in chunks of 128 positions
void segments_backward(const Bf16BackwardArguments&);       ///< the same, with both walks in segments

// Why dispatch cannot run the problem, as a sentence, empty if it can; what it chooses, as text for the report; and the
// bytes of memory that it needs beside inputs and outputs. Of the stages: dispatch/requirements.hpp.
std::string dispatch_backward_unsupported(const Bf16BackwardArguments&);
std::string dispatch_backward_note(const Bf16BackwardArguments&);
std::int64_t dispatch_backward_memory(const Bf16BackwardArguments&);
/// The bytes of `recurrent`, which chapter 06 runs, too.
std::int64_t recurrent_backward_memory(const FloatBackwardArguments&);

}  // namespace tutorial::delta_rule
