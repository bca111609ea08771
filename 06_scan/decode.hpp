#pragma once
/// @file
/// The operator `decode` and one declaration per stage: the first P tokens at once, the others one at a time. Plain
/// views and sizes only: .cu files include it.
///
/// Six rules, each with a state S [Dk, Dv] per head and S_0 = initial_state or 0:
///
///     simple_gla   S_t = exp(g_t) S_{t-1} + k_t^T v_t                                      o_t = scale q_t S_t
///     gla          S_t = diag(exp(g_t)) S_{t-1} + k_t^T v_t                                o_t = scale q_t S_t
///     delta_rule   S_t = S_{t-1} + beta_t k_t^T (v_t - k_t S_{t-1})                        o_t = scale q_t S_t
///     gated_delta_rule
///                  S_t = exp(g_t) S_{t-1} + beta_t k_t^T (v_t - k_t exp(g_t) S_{t-1})      o_t = scale q_t S_t
///     kda          S_t = diag(exp(g_t)) S_{t-1} + beta_t k_t^T (v_t - k_t diag(exp(g_t)) S_{t-1})
///                                                                                          o_t = scale q_t S_t
///     normalized   S_t = S_{t-1} + phi(k_t)^T v_t, z_t = z_{t-1} + phi(k_t)
///                                                                 o_t = phi(q_t) S_t / (phi(q_t) . z_t + eps)
///
/// These are the recurrences of chapters 04, 03, 05 (three) and 01, with their symbols; phi(x) = elu(x) + 1, z_0 =
/// initial_z or 0, and phi(k_t) = 0 for t >= key_lengths[b]. Views of CPU stages point into host memory, views of GPU
/// stages into device memory. GPU stages only start their kernels, on current_stream(); they throw CudaError if the
/// runtime refuses. All sizes but P are 1 or more. A stage does not check what it supports: decode/requirements.hpp
/// tells. bind() throws std::logic_error if the call lacks a size or has a tensor of another type.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "common/view.hpp"

namespace tutorial::decode {

/// The recurrences that can be decoded.
enum class Rule { simple_gla, gla, delta_rule, normalized, gated_delta_rule, kda };

/// Whether one gate per head and token multiplies the whole state.
__host__ __device__ constexpr bool has_scalar_gate(Rule rule) {
  return rule == Rule::simple_gla || rule == Rule::gated_delta_rule;
}

/// Whether each row of the state has a gate of its own.
__host__ __device__ constexpr bool has_row_gates(Rule rule) {
  return rule == Rule::gla || rule == Rule::kda;
}

/// Whether a token reads what the state answers to its key and adds the difference.
__host__ __device__ constexpr bool replaces_answer(Rule rule) {
  return rule == Rule::delta_rule || rule == Rule::gated_delta_rule || rule == Rule::kda;
}

/// Tensors that a rule does not have are null.
/// @tparam T the element type of q, k, v and o: float, or __nv_bfloat16 for the GPU stages. Gates, beta and states are
/// fp32.
template <class T>
struct Arguments {
  int B, H, L, Dk, Dv;
  int P;                            ///< tokens of the prompt, 0 to L
  float scale;                      ///< multiplies q
  float eps;                        ///< added to the denominator
  View<const T> q;                  ///< [B, H, L, Dk]
  View<const T> k;                  ///< [B, H, L, Dk]
  View<const T> v;                  ///< [B, H, L, Dv]
  View<const float> g;              ///< [B, H, L], rows of one element, or [B, H, L, Dk]: <= 0
  View<const float> beta;           ///< [B, H, L], in [0, 2]: rows of one element
  const int* key_lengths;           ///< [B], or null if every key counts
  View<const float> initial_state;  ///< [B, H, Dk, Dv]; data is null if S_0 = 0
  const float* initial_z;           ///< [B, H, Dk], or null if z_0 = 0
  View<T> o;                        ///< [B, H, L, Dv]
  View<float> final_state;          ///< [B, H, Dk, Dv]: where the state lives from the first token on
  float* final_z;                   ///< [B, H, Dk]; unlike final_state it may not be initial_z

  static Arguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatArguments = Arguments<float>;         ///< tensors in fp32
using Bf16Arguments = Arguments<__nv_bfloat16>;  ///< q, k, v and o in bf16

/// Instantiates a stage, a template of the rule, for all rules.
#define TUTORIAL_DECODE_WITH_ALL_RULES(stage, Arguments)         \
  template void stage<Rule::simple_gla>(const Arguments&);       \
  template void stage<Rule::gla>(const Arguments&);              \
  template void stage<Rule::delta_rule>(const Arguments&);       \
  template void stage<Rule::normalized>(const Arguments&);       \
  template void stage<Rule::gated_delta_rule>(const Arguments&); \
  template void stage<Rule::kda>(const Arguments&)

/// CPU, double: what the others are checked against. The chapters' own recurrences, whatever P is.
template <Rule kRule>
void recurrent(const FloatArguments&);

/// GPU: all L tokens at once by the chapters' dispatch, whatever P is.
template <Rule kRule>
void prefill(const Bf16Arguments&);
/// GPU: the prompt by prefill, then one kernel per token, a thread per column of the state.
template <Rule kRule>
void step(const Bf16Arguments&);
/// GPU: all loads of the state are in flight before the first wait.
template <Rule kRule>
void step_in_registers(const Bf16Arguments&);
/// GPU: the state is written once per 16 tokens, and the updates since then are replayed.
template <Rule kRule>
void replay(const Bf16Arguments&);
/// GPU: what a user calls.
template <Rule kRule>
void dispatch(const Bf16Arguments&);

}  // namespace tutorial::decode
