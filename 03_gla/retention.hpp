#pragma once
/// @file
/// The operator `retention`: gla with the same constant for all gates of a head.
///
///     S_t = (1 - 2^(-5-h)) S_{t-1} + k_t^T v_t,    o_t = scale q_t S_t,    S_0 = initial_state or 0
///
/// Source: Sun et al., "Retentive Network: A Successor to Transformer for Large Language Models", arXiv 2307.08621,
/// equations 5 and 8 (without the rotation of q and k). Errors, sizes and bind() as in gla.hpp.

#include <cuda_bf16.h>

#include "common/view.hpp"

namespace tutorial::retention {

/// @tparam T the element type of q, k, v and o, as in gla
template <class T>
struct Arguments {
  int B, H, L, Dk, Dv;
  float scale;                      ///< multiplies q
  View<const T> q;                  ///< [B, H, L, Dk]
  View<const T> k;                  ///< [B, H, L, Dk]
  View<const T> v;                  ///< [B, H, L, Dv]
  View<const float> initial_state;  ///< [B, H, Dk, Dv]; data is null if S_0 = 0
  View<T> o;                        ///< [B, H, L, Dv]
  View<float> final_state;          ///< [B, H, Dk, Dv]; data is null if it is not wanted

  static Arguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatArguments = Arguments<float>;         ///< tensors in fp32
using Bf16Arguments = Arguments<__nv_bfloat16>;  ///< q, k, v and o in bf16

/// The recurrence in double on the CPU, with the decay as it is defined: what the stages are checked against.
void recurrent_double(const FloatArguments&);

/// GPU: gla's dispatch on a table of gates
template <class T>
void gpu(const Arguments<T>&);

}  // namespace tutorial::retention
