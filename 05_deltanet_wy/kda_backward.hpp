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
#include <string>

#include "05_deltanet_wy/delta_rule_backward.hpp"

namespace tutorial::kda {

/// The arguments of `delta_rule --backward`, the gates and their gradient.
/// @tparam T the element type of q, k, v, do and their gradients: float, or __nv_bfloat16 for the tensor-core stages.
/// g, beta, states and their gradients are fp32.
template <class T>
struct BackwardArguments : delta_rule::BackwardArguments<T> {
  static constexpr bool kGatesAreRows = true;  ///< g and dg have rows of Dk

  View<const float> g;  ///< [B, H, L, Dk], <= 0, may be -inf
  View<float> dg;       ///< [B, H, L, Dk]

  static BackwardArguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatBackwardArguments = BackwardArguments<float>;         ///< tensors in fp32
using Bf16BackwardArguments = BackwardArguments<__nv_bfloat16>;  ///< q, k, v, do and their gradients in bf16

void recurrent_backward(const FloatBackwardArguments&);   ///< CPU, double: what every stage is checked against
void chunkwise_backward(const FloatBackwardArguments&);   ///< CPU, double: the adjoint of each line of a chunk
void tensor_core_backward(const Bf16BackwardArguments&);  ///< GPU: both walks, then all chunks at once
void dispatch_backward(const Bf16BackwardArguments&);     ///< what a user calls
void warpgroups_backward(const Bf16BackwardArguments&);   ///< Hopper: by warpgroups, with one anchor for a chunk
void segments_backward(const Bf16BackwardArguments&);     ///< the same, with both walks in segments

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

/// What dispatch chooses, as text for the report.
std::string dispatch_backward_note(const Bf16BackwardArguments&);

}  // namespace tutorial::kda
