#pragma once
/// @file
/// The form `--devices` of the operators `linear_attention`, `simple_gla` and `delta_rule`, and one declaration per
/// stage: N devices share the positions of a sequence. Plain views and sizes only: .cu files include it.
///
///     linear_attention   S_t = S_{t-1} + k_t^T v_t                                       o_t = scale q_t S_t
///     simple_gla         S_t = exp(g_t) S_{t-1} + k_t^T v_t                              o_t = scale q_t S_t
///     delta_rule         S_t = S_{t-1} + beta_t k_t^T (v_t - k_t S_{t-1})                o_t = scale q_t S_t
///
/// These are the recurrences of chapters 02, 04 and 05, with their symbols. share_out() brings to each device its
/// positions of the inputs, collect() brings the outputs back; both are called before and after each run of a stage,
/// and are not part of its time. Views of a call point into the memory of the first device. Stages return when all
/// devices have finished. They throw CudaError where the runtime refuses, and std::runtime_error where a transfer fails
/// or does not end in time. A stage does not check what it supports: if its *_unsupported (over_devices/requirements.hpp)
/// is not empty, its behaviour is undefined. bind() throws std::logic_error if the call lacks a size or has a tensor of another type.

#include <cuda_bf16.h>

#include "common/view.hpp"

namespace tutorial::over_devices {

/// The recurrences whose sequences can be shared.
enum class Rule { linear_attention, simple_gla, delta_rule };

/// Tensors that a rule does not have are null.
struct Arguments {
  int B, H, L, Dk, Dv;
  int N;                            ///< devices, at most L
  float scale;                      ///< multiplies q
  View<const __nv_bfloat16> q;      ///< [B, H, L, Dk]
  View<const __nv_bfloat16> k;      ///< [B, H, L, Dk]
  View<const __nv_bfloat16> v;      ///< [B, H, L, Dv]
  View<const float> g;              ///< [B, H, L], <= 0: rows of one element
  View<const float> beta;           ///< [B, H, L], in [0, 2]: rows of one element
  View<const float> initial_state;  ///< [B, H, Dk, Dv]; data is null if S_0 = 0
  View<__nv_bfloat16> o;            ///< [B, H, L, Dv]
  View<float> final_state;          ///< [B, H, Dk, Dv]; data is null if it is not wanted

  static Arguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};

/// Brings to each device its positions of the inputs.
void share_out(const Arguments&);
/// Brings the outputs of the devices back.
void collect(const Arguments&);

/// GPUs: each device waits for the state of the one before it.
template <Rule kRule>
void relay(const Arguments&);
/// GPUs: all devices tell all what they make of any state, at once; then each walks from the state before it.
template <Rule kRule>
void all_gather(const Arguments&);

}  // namespace tutorial::over_devices
