/// @file
/// `dispatch` on a pool of states: what a user calls.
///
/// Idea: a token's kernel finds the state of its batch entry in a slot and leaves it there, so the pool is updated in place
/// and no state moves. Only a prompt, which the chapters' kernels compute on a batch of states, gathers its states before
/// and scatters them after: twice the bytes of a state, once per prompt.
/// Unchanged: the kernel of ../../decode/dispatch/step.cu, which asks for the slot.
/// Requires: what it requires.

#include <cuda_runtime.h>

#include <algorithm>

#include "06_scan/decode/chapters.hpp"
#include "06_scan/decode/dispatch/step.hpp"
#include "06_scan/decode/requirements.hpp"
#include "06_scan/decode_pool.hpp"
#include "common/device/convert.cuh"
#include "common/device/error.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/stream.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::decode {
namespace {

constexpr int kThreads = 256, kHeadsAtOnce = 1024;

/// batch[b] = pool[indices[b]], zeros for an idle entry; or the other way round, where an idle entry leaves the pool as it
/// is. Grid (B, H).
/// @param batch [B, H, Dk, Dv]
template <class State>
__global__ void __launch_bounds__(kThreads)
    move_states_kernel(const std::int32_t* indices, View<State> pool, View<float> batch, int H, int Dk, int Dv,
                       bool is_to_pool) {
  const int b = int(blockIdx.x), slot = load_global(indices + b);
  for (int h = int(blockIdx.y); h < H; h += int(gridDim.y)) {
    for (int i = int(threadIdx.x); i < Dk * Dv; i += kThreads) {
      float* in_batch = batch.row(b, h, i / Dv) + i % Dv;
      State* in_pool = slot < 0 ? nullptr : pool.row(slot, h, i / Dv) + i % Dv;
      if (!is_to_pool) {
        store_global(in_batch, in_pool ? float(load_for_update(in_pool)) : 0.0f);
      } else if (in_pool) {
        store_global(in_pool, State(load_for_update(in_batch)));
      }
    }
  }
}

/// The outputs of idle entries become 0 in the prompt, as the kernel of a token has it. Grid (B, H).
__global__ void __launch_bounds__(kThreads) clear_idle_prompts_kernel(Bf16Arguments a, const std::int32_t* indices) {
  const int b = int(blockIdx.x);
  if (load_global(indices + b) >= 0) return;
  for (int h = int(blockIdx.y); h < a.H; h += int(gridDim.y)) {
    for (std::int64_t i = threadIdx.x; i < std::int64_t(a.P) * a.Dv; i += kThreads) {
      store_global(a.o.row(b, h, i / a.Dv) + i % a.Dv, __nv_bfloat16(0.0f));
    }
  }
}

std::int64_t states_of(const Bf16Arguments& a) {
  return std::int64_t(a.B) * a.H * a.Dk * a.Dv;
}

/// Where round_pool() leaves it.
View<__nv_bfloat16> pool_in_bf16(const Bf16PoolArguments& p) {
  const Bf16Arguments& a = p.tokens;
  const auto elements = std::size_t(p.slots) * std::size_t(a.H) * std::size_t(a.Dk) * std::size_t(a.Dv);
  return packed(workspace<__nv_bfloat16>("decode: a pool in bf16", elements), a.H, a.Dk, a.Dv);
}

}  // namespace

template <Rule kRule, class State>
void decode_in_pool(const Bf16Arguments& a, const View<State>& pool, const std::int32_t* indices) {
  if (a.P > 0) {
    const dim3 grid(unsigned(a.B), unsigned(std::min(a.H, kHeadsAtOnce)));
    float* memory = workspace<float>("decode: states of a prompt", 2 * std::size_t(states_of(a)));
    const View<float> before = packed(memory, a.H, a.Dk, a.Dv), after = packed(memory + states_of(a), a.H, a.Dk, a.Dv);
    launch(move_states_kernel<State>, {grid, kThreads}, indices, pool, before, a.H, a.Dk, a.Dv, false);
    Bf16Arguments prompt = prompt_of(a);
    prompt.initial_state = read_only(before);
    prompt.final_state = after;
    prefill<kRule>(prompt);
    launch(move_states_kernel<State>, {grid, kThreads}, indices, pool, after, a.H, a.Dk, a.Dv, true);
    launch(clear_idle_prompts_kernel, {grid, kThreads}, a, indices);
  }
  pooled_steps<kRule>(a, select_tile(a), pool, indices);
}

void copy_pool(const Bf16PoolArguments& p) {
  const auto bytes = std::size_t(p.slots) * std::size_t(p.state_pool.stride_b) * sizeof(float);
  check(cudaMemcpyAsync(p.final_pool.data, p.state_pool.data, bytes, cudaMemcpyDeviceToDevice, current_stream()));
}

template <Rule kRule>
void dispatch_pool(const Bf16PoolArguments& p) {
  decode_in_pool<kRule>(p.tokens, p.final_pool, p.indices);
}

void round_pool(const Bf16PoolArguments& p) {
  const Bf16Arguments& a = p.tokens;
  convert(p.slots, a.H, a.Dk, a.Dv, p.state_pool, pool_in_bf16(p));
}

template <Rule kRule>
void dispatch_pool_bf16(const Bf16PoolArguments& p) {
  decode_in_pool<kRule>(p.tokens, pool_in_bf16(p), p.indices);
}

void widen_pool(const Bf16PoolArguments& p) {
  const Bf16Arguments& a = p.tokens;
  convert(p.slots, a.H, a.Dk, a.Dv, read_only(pool_in_bf16(p)), p.final_pool);
}

template <Rule kRule>
std::string dispatch_pool_unsupported(const Bf16PoolArguments& p) {
  return dispatch_unsupported<kRule>(p.tokens);
}

template <Rule kRule>
std::int64_t dispatch_pool_memory(const Bf16PoolArguments& p) {
  const Bf16Arguments& a = p.tokens;
  if (a.P == 0) return 0;
  return 2 * std::int64_t(sizeof(float)) * states_of(a) + prefill_memory<kRule>(prompt_of(a));
}

template <Rule kRule>
std::string dispatch_pool_bf16_unsupported(const Bf16PoolArguments& p) {
  const std::string reason = convert_unsupported(p.slots, p.tokens.H, p.tokens.Dk);
  return reason.empty() ? dispatch_pool_unsupported<kRule>(p) : reason;
}

template <Rule kRule>
std::int64_t dispatch_pool_bf16_memory(const Bf16PoolArguments& p) {
  const Bf16Arguments& a = p.tokens;
  return dispatch_pool_memory<kRule>(p) + 2 * std::int64_t(p.slots) * a.H * a.Dk * a.Dv;
}

#define INSTANTIATE(RULE)                                                                            \
  template void decode_in_pool<RULE>(const Bf16Arguments&, const View<float>&, const std::int32_t*); \
  template void decode_in_pool<RULE>(const Bf16Arguments&, const View<__nv_bfloat16>&, const std::int32_t*)
INSTANTIATE(Rule::simple_gla);
INSTANTIATE(Rule::gla);
INSTANTIATE(Rule::delta_rule);
INSTANTIATE(Rule::gated_delta_rule);
INSTANTIATE(Rule::kda);
#undef INSTANTIATE
TUTORIAL_DECODE_WITH_POOL_RULES(void, dispatch_pool, Bf16PoolArguments);
TUTORIAL_DECODE_WITH_POOL_RULES(void, dispatch_pool_bf16, Bf16PoolArguments);
TUTORIAL_DECODE_WITH_POOL_RULES(std::string, dispatch_pool_bf16_unsupported, Bf16PoolArguments);
TUTORIAL_DECODE_WITH_POOL_RULES(std::int64_t, dispatch_pool_bf16_memory, Bf16PoolArguments);
TUTORIAL_DECODE_WITH_POOL_RULES(std::string, dispatch_pool_unsupported, Bf16PoolArguments);
TUTORIAL_DECODE_WITH_POOL_RULES(std::int64_t, dispatch_pool_memory, Bf16PoolArguments);

}  // namespace tutorial::decode
