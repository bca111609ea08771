#pragma once
/// @file
/// The gradients of the normalised operator, as `--backward --normalize` computes them.
///
///     o_t = n_t / e_t,    n_t = scale q_t S_t,    e_t = scale q_t . z_t + eps
///
/// With u_t for the gradient with respect to n_t and w_t for that with respect to e_t,
///
///     u_t = do_t / e_t,    w_t = -(do_t . o_t) / e_t
///     dq_t = scale u_t S_t^T + scale w_t z_t
///     dk_t = v_t dS_t^T + dz_t,    dv_t = k_t dS_t
///     dS_t = dS_{t+1} + scale q_t^T u_t,    dz_t = dz_{t+1} + scale w_t q_t
///
/// Without the terms in w and z this is `linear_attention --backward` with u in the place of do. Errors and
/// requirements are as in linear_attention.hpp.

#include <cstdint>
#include <string>

#include "02_chunkwise/linear_attention_backward.hpp"

namespace tutorial::linear_attention {

/// @tparam T as in BackwardArguments
template <class T>
struct NormalizedBackwardArguments {
  BackwardArguments<T> attention;  ///< d_o is the gradient of the quotient
  const float* initial_z;          ///< z_0 [B, H, Dk]; null: 0
  const float* dfinal_z;           ///< the gradient of the final z [B, H, Dk]; null: 0
  float* dinitial_z;               ///< dz_1 [B, H, Dk]; null if it is unused
  float eps;                       ///< added to the denominator
  /// The second terms of dq and dk, which are subtracted in most cases. The reference writes them, [B, H, L, Dk]; data
  /// is null for stages.
  View<float> dq_subtracted, dk_subtracted;

  static NormalizedBackwardArguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
// With tensors in fp32, and with all but the states in bf16.
using NormalizedBackwardFloatArguments = NormalizedBackwardArguments<float>;
using NormalizedBackwardBf16Arguments = NormalizedBackwardArguments<__nv_bfloat16>;

/// In double on the CPU: the reference of the stages.
void normalized_double_backward(const NormalizedBackwardFloatArguments&);
void normalized_recurrent_backward(const NormalizedBackwardFloatArguments&);  ///< CPU: two passes
void dispatch_normalized_backward(const NormalizedBackwardBf16Arguments&);    ///< the walks of dispatch and two sums

// Why dispatch_normalized_backward() cannot run the problem, what it chooses, and the bytes that it needs in addition
// to inputs and outputs.
std::string dispatch_normalized_backward_unsupported(const NormalizedBackwardBf16Arguments&);
std::string dispatch_normalized_backward_note(const NormalizedBackwardBf16Arguments&);
std::int64_t dispatch_normalized_backward_memory(const NormalizedBackwardBf16Arguments&);

}  // namespace tutorial::linear_attention
