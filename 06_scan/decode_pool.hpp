#pragma once
/// @file
/// The operator `decode` on a pool of states, as `--pool` runs it. A server keeps the states of all its requests in one
/// place, and each batch is of some of them: entry b goes on from the state in slot state_indices[b], and leaves its new
/// state there. An entry with the index -1 is idle: it changes no state, and its outputs are 0. Errors and requirements
/// are as in decode.hpp. The normalised rule, which has z beside the state, has no pool.

#include <cstdint>
#include <string>

#include "06_scan/decode.hpp"

namespace tutorial::decode {

/// @tparam T as in Arguments
template <class T>
struct PoolArguments {
  Arguments<T> tokens;           ///< initial_state and final_state are not used
  int slots;                     ///< of the pool
  const std::int32_t* indices;   ///< [B]: slots, no two alike, or -1
  View<const float> state_pool;  ///< [slots, H, Dk, Dv]
  View<float> final_pool;        ///< the same after all tokens

  static PoolArguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatPoolArguments = PoolArguments<float>;         ///< tensors in fp32
using Bf16PoolArguments = PoolArguments<__nv_bfloat16>;  ///< q, k, v and o in bf16

/// Instantiates a function of pools, a template of the rule, for all rules that have one.
#define TUTORIAL_DECODE_WITH_POOL_RULES(result, function, Arguments)  \
  template result function<Rule::simple_gla>(const Arguments&);       \
  template result function<Rule::gla>(const Arguments&);              \
  template result function<Rule::delta_rule>(const Arguments&);       \
  template result function<Rule::gated_delta_rule>(const Arguments&); \
  template result function<Rule::kda>(const Arguments&)

/// CPU, double: `recurrent` of each entry that is not idle.
template <Rule kRule>
void recurrent_pool(const FloatPoolArguments&);
/// GPU: what a user calls, in place. The prompt by prefill() on states that are gathered and scattered, then one kernel
/// per token, which reads and writes the slots.
/// @tparam State float, or __nv_bfloat16: each token rounds the state that it leaves
/// @param pool [slots, H, Dk, Dv] @param indices [B]
template <Rule kRule, class State>
void decode_in_pool(const Bf16Arguments&, const View<State>& pool, const std::int32_t* indices);

void copy_pool(const Bf16PoolArguments&);  ///< GPU: final_pool = state_pool
template <Rule kRule>
void dispatch_pool(const Bf16PoolArguments&);  ///< GPU: decode_in_pool() on final_pool, after copy_pool()

void round_pool(const Bf16PoolArguments&);  ///< GPU: state_pool in bf16, in a workspace
template <Rule kRule>
void dispatch_pool_bf16(const Bf16PoolArguments&);  ///< GPU: decode_in_pool() on what round_pool() has made
void widen_pool(const Bf16PoolArguments&);          ///< GPU: final_pool = that pool

// Why they cannot run the problem, and the bytes that they need in addition to inputs and outputs.
template <Rule kRule>
std::string dispatch_pool_unsupported(const Bf16PoolArguments&);
template <Rule kRule>
std::int64_t dispatch_pool_memory(const Bf16PoolArguments&);
template <Rule kRule>
std::string dispatch_pool_bf16_unsupported(const Bf16PoolArguments&);
template <Rule kRule>
std::int64_t dispatch_pool_bf16_memory(const Bf16PoolArguments&);

}  // namespace tutorial::decode
