/// @file
/// `step`: one token at a time.
///
/// Idea: after the prompt, each token is one step of the recurrence. It reads the state, updates it and writes it. Each
/// thread has one column of the state and walks down its rows, in device memory.
/// Grows out of: 1_recurrent.cpp; port to the GPU: one kernel per token, after a prompt that `prefill` computes
/// Improves on: `prefill` needs all tokens in advance. With one token, its chunk would be a tile that is almost empty.
/// Unchanged: the operator, and the prompt, which `prefill` computes.
/// Equation:
///
///   u = v_t, or beta_t (v_t - k_t gate S) in the delta rules: the first sum over Dk
///   S = gate S + k_t^T u                               gate exp(g_t), one per row for gla and kda; 1 without gates
///   o = scale q_t S                                    the second sum over Dk
///
/// with phi(q_t) and phi(k_t) in the normalised form, z = z + phi(k_t) and o divided by phi(q_t) . z + eps.
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] in bf16; g, beta, S [B, H, Dk, Dv] and z [B, H, Dk] in fp32; all in
/// device memory. All sums are in fp32.
/// Thread mapping: block (b, h, tile) has 128 threads and 128 columns of the state. Neighbouring lanes read
/// neighbouring columns of a row. q, k and the gates pass through shared memory, followed by the only barrier.
/// Resources: 3 KB of shared memory.
/// Work: 5 Dk Dv operations per head and token, 7 Dk Dv in the delta rules.
/// Bytes: the state is read once (twice in the delta rules) and written once, 8 Dk Dv; v and o once; q, k and the gates
/// once per tile.
/// Bound by: latency. A thread has only a few of its Dk rows in flight, and there are only B H blocks per tile of
/// columns.
/// Requires: Dk <= 256.
/// Weakness: the loads of a row wait for the arithmetic of the rows before it, and the delta rules read the state
/// twice.
/// Sources: those of `recurrent`.

#include <cuda_runtime.h>

#include "06_scan/decode.hpp"
#include "06_scan/decode/prompt_then_tokens.cuh"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/feature_map.hpp"

namespace tutorial::decode {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kColumns = kThreads;  // of a block
constexpr int kMaxKeyDim = 256;

/// Token t of all heads. Grid (tiles of the columns) (B H): the blocks of a head are neighbours.
template <Rule kRule>
__global__ void __launch_bounds__(kThreads) step_kernel(Bf16Arguments a, States states, int t) {
  __shared__ float q_row[kMaxKeyDim], k_row[kMaxKeyDim], gates[has_row_gates(kRule) ? kMaxKeyDim : 1];
  __shared__ float denominators[kWarps];
  const int tiles = (a.Dv - 1) / kColumns + 1;
  const int tile = int(blockIdx.x) % tiles, head = int(blockIdx.x) / tiles, b = head / a.H, h = head % a.H;
  const int thread = int(threadIdx.x), j = tile * kColumns + thread;

  // Each block converts its inputs and computes the exponentials once. Elements from Dk on are zeros.
  const bool has_key = kRule != Rule::normalized || !a.key_lengths || t < load_global(&a.key_lengths[b]);
  float denominator = 0;
#pragma unroll
  for (int d = thread; d < kMaxKeyDim; d += kThreads) {
    const bool is_there = d < a.Dk;
    float q_d = is_there ? float(load_global(a.q.row(b, h, t) + d)) : 0.0f;
    float k_d = is_there ? float(load_global(a.k.row(b, h, t) + d)) : 0.0f;
    if constexpr (kRule == Rule::normalized) {
      q_d = is_there ? phi(q_d) : 0.0f;
      k_d = is_there && has_key ? phi(k_d) : 0.0f;
      const std::int64_t index = std::int64_t(head) * a.Dk + d;
      const float z_d = k_d + (is_there && states.z ? load_global(&states.z[index]) : 0.0f);
      denominator += q_d * z_d;
      if (tile == 0 && is_there) store_global(&states.new_z[index], z_d);
    }
    q_row[d] = a.scale * q_d;
    k_row[d] = k_d;
    if constexpr (has_row_gates(kRule)) gates[d] = is_there ? expf(load_global(a.g.row(b, h, t) + d)) : 0.0f;
  }
  if constexpr (kRule == Rule::normalized) {
    denominator = warp_sum(denominator);
    if (thread % 32 == 0) denominators[thread / 32] = denominator;
  }
  // One gate, or beta, for all rows.
  float gate_of_all = 1, beta = 1;
  if constexpr (has_scalar_gate(kRule)) gate_of_all = expf(load_global(a.g.row(b, h, t)));
  if constexpr (replaces_answer(kRule)) beta = load_global(a.beta.row(b, h, t));
  __syncthreads();
  if (j >= a.Dv) return;

  const auto S = [&](int d) { return states.S.data ? load_for_update(states.S.row(b, h, d) + j) : 0.0f; };
  float u = float(load_global(a.v.row(b, h, t) + j));
  if constexpr (replaces_answer(kRule)) {
    float answer = 0;  // k_t S, where S fades in the sum if its rows have gates; a gate of all rows multiplies the sum
    for (int d = 0; d < a.Dk; ++d) answer += k_row[d] * ((has_row_gates(kRule) ? gates[d] : 1.0f) * S(d));
    u = beta * (u - gate_of_all * answer);
  }
  float o = 0;
#pragma unroll 4
  for (int d = 0; d < a.Dk; ++d) {
    const float gate = has_row_gates(kRule) ? gates[d] : gate_of_all;
    const float S_d = gate * S(d) + k_row[d] * u;
    o += q_row[d] * S_d;
    store_global(states.new_S.row(b, h, d) + j, S_d);
  }
  if constexpr (kRule == Rule::normalized) {
    denominator = a.eps;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) denominator += denominators[warp];
    o /= denominator;
  }
  store_global(a.o.row(b, h, t) + j, __nv_bfloat16(o));
}

}  // namespace

template <Rule kRule>
void step(const Bf16Arguments& a) {
  const auto blocks = unsigned(std::int64_t(a.B) * a.H * ceil_div(a.Dv, kColumns));
  prompt_then_tokens<kRule>(a, [&](const States& states, int t) {
    launch(step_kernel<kRule>, {blocks, kThreads}, a, states, t);
  });
}

TUTORIAL_DECODE_WITH_ALL_RULES(step, Bf16Arguments);

}  // namespace tutorial::decode
