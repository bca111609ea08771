#pragma once
/// @file
/// The gradients of the operators with `--devices`, as `--backward --devices` computes them, and one declaration per
/// stage. Plain views and sizes only: .cu files include it.
///
/// The recurrences of the gradients are those of chapters 02, 04 and 05. With dS for the gradient with respect to the
/// state S after a device's last position, M for what the device does to a state, and Y for what its own outputs add,
///
///     gradient with respect to the state before the device = M^T dS + Y
///
/// where M is that of the forward pass: the state goes from the first device to the last, its gradient from the last to
/// the first. Symbols, memory, errors and requirements are as in over_devices.hpp.

#include <cuda_bf16.h>

#include "06_scan/over_devices.hpp"
#include "common/view.hpp"

namespace tutorial::over_devices {

/// Tensors that a rule does not have are null.
struct BackwardArguments {
  int B, H, L, Dk, Dv;
  int N;                            ///< devices, at most L
  float scale;                      ///< multiplies q; not 0 on a GPU (Operator::backward)
  View<const __nv_bfloat16> q;      ///< [B, H, L, Dk]
  View<const __nv_bfloat16> k;      ///< [B, H, L, Dk]
  View<const __nv_bfloat16> v;      ///< [B, H, L, Dv]
  View<const float> g;              ///< [B, H, L], <= 0: rows of one element
  View<const float> beta;           ///< [B, H, L], in [0, 2]: rows of one element
  View<const float> initial_state;  ///< [B, H, Dk, Dv]; data is null if S_0 = 0
  View<const __nv_bfloat16> d_o;    ///< [B, H, L, Dv]: the gradient of o
  View<const float> dfinal_state;   ///< [B, H, Dk, Dv]: that of the final state; data is null if it is 0
  View<__nv_bfloat16> dq;           ///< [B, H, L, Dk]
  View<__nv_bfloat16> dk;           ///< [B, H, L, Dk]
  View<__nv_bfloat16> dv;           ///< [B, H, L, Dv]
  View<float> dg;                   ///< [B, H, L]
  View<float> dbeta;                ///< [B, H, L]
  View<float> dinitial_state;       ///< [B, H, Dk, Dv]; data is null if it is unused

  static BackwardArguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};

/// Brings to each device its positions of the inputs.
void share_out(const BackwardArguments&);
/// Brings the gradients of the devices back.
void collect(const BackwardArguments&);

/// GPUs: all devices tell all what they make of any state and of any gradient of it, at once.
template <Rule kRule>
void all_gather_backward(const BackwardArguments&);

}  // namespace tutorial::over_devices
