/// @file
/// `replay`: the state is written once per 16 tokens. In between the updates are kept, which are much smaller.
///
/// Idea: a token changes the state by one outer product, k_t^T u_t, and by its gate. These are Dk + Dv + 1 numbers, or
/// 2 Dk + Dv with a gate per row, and the state has Dk Dv. So a token stores its update beside the state, and does not change the state. The next one reads the old
/// state, replays the updates since then in registers, and goes on as before. Every 16th token, and the
/// last one of a call, writes the state, and then no updates are left.
///
///     token          0      1      2          15       16
///     reads          S      S u    S u u  ... S u..u   S         the state, and the updates since it was written
///     writes         u      u      u      ... S        u
///
/// Replaying does what the tokens before have done, in the same order and precision. So the outputs are those of
/// `step_in_registers` bit for bit.
/// Grows out of: 4_step_in_registers.cu
/// Improves on: `step_in_registers` writes the state for each token, which is half of its bytes, and the next token reads
/// it back.
/// Unchanged: the operator, the prompt, the thread mapping, and what a token computes.
/// Equation: that of `step_in_registers`, and before it S = gate_i S + k_i^T u_i for each kept update i, oldest first.
/// Shapes: those of `step_in_registers`; kept updates k [16, B, H, Dk], u [16, B, H, Dv] and gates [16, B, H] or
/// [16, B, H, Dk], fp32 in device memory.
/// Resources: those of `step_in_registers`, and 18 KB of shared memory for kept updates, 34 KB if rows have gates.
/// Work: 3 Dk Dv operations per head and replayed update, 7.5 updates per token on average: 5.5 times the operations of
/// `step_in_registers`.
/// Bytes: per head and token 4 Dk Dv for the state that is read, a sixteenth of that for the one that is written, and
/// 7.5 updates; 0.6 of those of `step_in_registers` for Dk = Dv = 128.
/// Bound by: not memory, as measured: on an H100 a token of 256 sequences takes 50 us more than in `step_in_registers`.
/// Requires: what `step_in_registers` requires.
/// Weakness: that. With few states a token takes as long as a launch and a trip to memory, and fewer bytes gain nothing. What
/// reads the state at another time (a cache of prefixes, say) has to replay, too.
/// Sources: the idea was published as ReplaySSM (2026); here it is written anew for all rules of `decode`.

#include <cuda_runtime.h>

#include "06_scan/decode.hpp"
#include "06_scan/decode/kept_updates.hpp"
#include "06_scan/decode/prompt_then_tokens.cuh"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/feature_map.hpp"

namespace tutorial::decode {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kColumns = 32, kQuads = kColumns / 4;  // of a block; threads that have columns of the same row
constexpr int kRowsAtOnce = kThreads / kQuads;
constexpr int kMaxKeyDim = 256;

/// Sums over the threads that have the same columns. After the block's next barrier sum_of_warps() has the result.
/// @param own of 4 columns, over this thread's rows
__device__ __forceinline__ void sum_over_rows(float (&own)[4], float (*sums)[kColumns]) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    for (int flipped = 16; flipped >= kQuads; flipped /= 2) own[c] += shuffle_xor(own[c], flipped);
    if (lane < kQuads) sums[warp][4 * lane + c] = own[c];
  }
}

__device__ __forceinline__ float sum_of_warps(const float (*sums)[kColumns], int column) {
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += sums[warp][column];
  return sum;
}

/// Token t of all heads. Grid (tiles of the columns) (B H): the blocks of a head are neighbours.
/// @tparam kRows of a thread: kRows kRowsAtOnce >= Dk
template <Rule kRule, int kRows>
__global__ void __launch_bounds__(kThreads)
    replay_kernel(Bf16Arguments a, States states, KeptUpdates kept, bool is_written, int t) {
  __shared__ float q_row[kMaxKeyDim], k_rows[kMostKept + 1][kMaxKeyDim];
  __shared__ float u_rows[kMostKept][kColumns], gate_rows[kMostKept + 1][has_row_gates(kRule) ? kMaxKeyDim : 1];
  __shared__ float denominators[kWarps];
  __shared__ float sums[kWarps][kColumns], key_sums[kWarps][kColumns];
  const int tiles = (a.Dv - 1) / kColumns + 1;
  const int tile = int(blockIdx.x) % tiles, head = int(blockIdx.x) / tiles, b = head / a.H, h = head % a.H;
  const int thread = int(threadIdx.x), j = tile * kColumns + thread % kQuads * 4;
  const auto row = [&](int i) { return thread / kQuads + i * kRowsAtOnce; };

  float4 S[kRows] = {};
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (row(i) >= a.Dk || j >= a.Dv || !states.S.data) continue;
    S[i] = load_for_update(reinterpret_cast<const float4*>(states.S.row(b, h, row(i)) + j));
  }

  float *k_row = k_rows[kept.count], *gates = gate_rows[kept.count];  // behind those of the tokens before
  for (int i = 0; i < kept.count; ++i) {
#pragma unroll
    for (int d = thread; d < kMaxKeyDim; d += kThreads) {
      k_rows[i][d] = d < a.Dk ? load_for_update(kept.key(i, head) + d) : 0.0f;
      if constexpr (has_row_gates(kRule)) gate_rows[i][d] = d < a.Dk ? load_for_update(kept.gate(i, head) + d) : 0.0f;
    }
    if (has_scalar_gate(kRule) && thread == 0) gate_rows[i][0] = load_for_update(kept.gate(i, head));
    const int column = tile * kColumns + thread;
    if (thread < kColumns) u_rows[i][thread] = column < a.Dv ? load_for_update(kept.value(i, head) + column) : 0.0f;
  }

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

  for (int n = 0; n < kept.count; ++n) {
    const float* u = u_rows[n] + thread % kQuads * 4;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float gate = 1;
      if constexpr (has_row_gates(kRule)) gate = gate_rows[n][row(i)];
      if constexpr (has_scalar_gate(kRule)) gate = gate_rows[n][0];
      const float k_d = k_rows[n][row(i)];
      S[i].x = gate * S[i].x + k_d * u[0], S[i].y = gate * S[i].y + k_d * u[1];
      S[i].z = gate * S[i].z + k_d * u[2], S[i].w = gate * S[i].w + k_d * u[3];
    }
  }

  float u[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) u[c] = j < a.Dv ? float(load_global(a.v.row(b, h, t) + j + c)) : 0.0f;
  if constexpr (replaces_answer(kRule)) {
    float answer[4] = {};  // k_t S; gates of rows multiply k_t, a gate of all rows the sum
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float k_d = k_row[row(i)] * (has_row_gates(kRule) ? gates[row(i)] : 1.0f);
      answer[0] += k_d * S[i].x, answer[1] += k_d * S[i].y, answer[2] += k_d * S[i].z, answer[3] += k_d * S[i].w;
    }
    sum_over_rows(answer, key_sums);
    __syncthreads();
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      u[c] = beta * (u[c] - gate_of_all * sum_of_warps(key_sums, thread % kQuads * 4 + c));
    }
  }
  float o[4] = {};
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float gate = has_row_gates(kRule) ? gates[row(i)] : gate_of_all;
    const float q_d = q_row[row(i)], k_d = k_row[row(i)];
    S[i].x = gate * S[i].x + k_d * u[0], S[i].y = gate * S[i].y + k_d * u[1];
    S[i].z = gate * S[i].z + k_d * u[2], S[i].w = gate * S[i].w + k_d * u[3];
    o[0] += q_d * S[i].x, o[1] += q_d * S[i].y, o[2] += q_d * S[i].z, o[3] += q_d * S[i].w;
    if (row(i) >= a.Dk || j >= a.Dv || !is_written) continue;
    store_global(reinterpret_cast<float4*>(states.new_S.row(b, h, row(i)) + j), S[i]);
  }
  if (!is_written) {
    if (thread < kQuads && j < a.Dv) {
      store_global(reinterpret_cast<float4*>(kept.value(kept.count, head) + j), make_float4(u[0], u[1], u[2], u[3]));
    }
    for (int d = thread; tile == 0 && d < a.Dk; d += kThreads) {
      store_global(kept.key(kept.count, head) + d, k_row[d]);
      if constexpr (has_row_gates(kRule)) store_global(kept.gate(kept.count, head) + d, gates[d]);
    }
    if (has_scalar_gate(kRule) && tile == 0 && thread == 0) store_global(kept.gate(kept.count, head), gate_of_all);
  }
  sum_over_rows(o, sums);
  __syncthreads();
  if (thread >= kColumns || tile * kColumns + thread >= a.Dv) return;
  float result = sum_of_warps(sums, thread);
  if constexpr (kRule == Rule::normalized) {
    denominator = a.eps;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) denominator += denominators[warp];
    result /= denominator;
  }
  store_global(a.o.row(b, h, t) + tile * kColumns + thread, __nv_bfloat16(result));
}

template <Rule kRule>
auto kernel_for(int Dk) {
  return Dk <= 32    ? replay_kernel<kRule, 2>
         : Dk <= 64  ? replay_kernel<kRule, 4>
         : Dk <= 128 ? replay_kernel<kRule, 8>
                     : replay_kernel<kRule, 16>;
}

}  // namespace

template <Rule kRule>
void replay(const Bf16Arguments& a) {
  const auto blocks = unsigned(std::int64_t(a.B) * a.H * ceil_div(a.Dv, kColumns));
  KeptUpdates kept = kept_updates(kRule, a, workspace<float>("decode: updates", std::size_t(kept_count(kRule, a))));
  View<const float> S;  // as it was last written
  prompt_then_tokens<kRule>(a, [&](States states, int t) {
    kept.count = (t - a.P) % (kMostKept + 1);
    if (t == a.P) S = states.S;
    states.S = S;
    const bool is_written = kept.count == kMostKept || t == a.L - 1;
    launch(kernel_for<kRule>(a.Dk), {blocks, kThreads}, a, states, kept, is_written, t);
    if (is_written) S = read_only(states.new_S);
  });
}

TUTORIAL_DECODE_WITH_ALL_RULES(replay, Bf16Arguments);

}  // namespace tutorial::decode
