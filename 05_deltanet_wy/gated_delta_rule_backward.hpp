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
///     dg_t = <dS'_t, S'_t>,   dS'_t = dS_t - k_t^T dv_t
///     dinitial_state = exp(g_1) (dS_1 - k_1^T dv_1)
///
/// `<X, Y>` is the sum of the products of all elements, and dS'_t the gradient with respect to the faded state. dg_t is
/// the sum of all that crosses the gate of t. From position to position it changes by rows:
///
///     dg_t = dg_{t+1} + q_t . dq_t + k_t . (dk_t due to the read - dk_t due to the write)
///
/// at t = L the first term is <dfinal_state, S_L> or 0.
///
/// With `normalize_keys` these are the gradients for y_t = f_t k_t, where f_t = (k_t . k_t + kKeyEps)^(-1/2), and the
/// gradient for k_t is dk_t = f_t (dy_t - (dy_t . y_t) y_t).
///
/// No stage receives results of the forward pass: S_t is computed again from the inputs. Symbols, memory, errors and
/// requirements are as in gated_delta_rule.hpp.
/// Source: arXiv 2412.06464, equation 10; its adjoint step by step is ours.

#include <cstdint>
#include <string>

#include "05_deltanet_wy/delta_rule_backward.hpp"

namespace tutorial::gated_delta_rule {

/// The arguments of `delta_rule --backward`, the gates and their gradient.
/// @tparam T the element type of q, k, v, do and their gradients: float, or __nv_bfloat16 for the tensor-core stages.
/// g, beta, states and their gradients are fp32.
template <class T>
struct BackwardArguments : delta_rule::BackwardArguments<T> {
  View<const float> g;  ///< [B, H, L], <= 0, may be -inf: rows of one element
  View<float> dg;       ///< [B, H, L]: rows of one element
  /// [B, H, L]: for the reference, the root of the sum of the squares of the products that dg_t adds up; data is null in
  /// every other call
  View<float> dg_terms;

  static BackwardArguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatBackwardArguments = BackwardArguments<float>;         ///< tensors in fp32
using Bf16BackwardArguments = BackwardArguments<__nv_bfloat16>;  ///< q, k, v, do and their gradients in bf16

void recurrent_backward(const FloatBackwardArguments&);   ///< CPU, double: what every stage is checked against
void chunkwise_backward(const FloatBackwardArguments&);   ///< CPU, double: the adjoint of each line of a chunk
void tensor_core_backward(const Bf16BackwardArguments&);  ///< GPU: both walks, then all chunks at once
void warpgroups_backward(const Bf16BackwardArguments&);   ///< GPU: by warpgroups and bulk copies, on Hopper
void segments_backward(const Bf16BackwardArguments&);     ///< GPU: the same, with both walks in segments
void dispatch_backward(const Bf16BackwardArguments&);     ///< what a user calls

// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string tensor_core_backward_unsupported(const Bf16BackwardArguments&);
std::string warpgroups_backward_unsupported(const Bf16BackwardArguments&);  ///< also `segments`
std::string dispatch_backward_unsupported(const Bf16BackwardArguments&);

// Bytes of memory that a stage needs in addition to its inputs and outputs.
std::int64_t recurrent_backward_memory(const FloatBackwardArguments&);
std::int64_t chunkwise_backward_memory(const FloatBackwardArguments&);
std::int64_t tensor_core_backward_memory(const Bf16BackwardArguments&);
std::int64_t warpgroups_backward_memory(const Bf16BackwardArguments&);
std::int64_t segments_backward_memory(const Bf16BackwardArguments&);
std::int64_t dispatch_backward_memory(const Bf16BackwardArguments&);

/// Bytes that the kernels of tensor_core read from device memory or write to it, even if a cache serves them.
std::int64_t tensor_core_backward_bytes_moved(const Bf16BackwardArguments&);
std::int64_t warpgroups_backward_bytes_moved(const Bf16BackwardArguments&);  ///< the same of warpgroups

/// What dispatch chooses, as text for the report.
std::string dispatch_backward_note(const Bf16BackwardArguments&);

}  // namespace tutorial::gated_delta_rule
