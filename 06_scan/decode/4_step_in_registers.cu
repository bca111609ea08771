/// @file
/// `step_in_registers`: all loads of the state are in flight before the first wait.
///
/// Idea: per element of the state 8 bytes move for five operations, and nothing else takes time. So the kernel is a
/// copy that computes on the way. The threads of a block divide the rows of its columns among themselves. Each thread
/// starts all loads of its part of the state, 16 bytes at a time, before it waits for the first.
/// Grows out of: 3_step.cu
/// Improves on: in `step` a thread has only a few rows in flight, and the delta rules read the state twice.
/// Unchanged: the operator, the prompt, and the way of q, k and the gates to the block.
/// Equation:
///
///   u = v_t, or beta_t (v_t - k_t gate S) in the delta rules: the first sum over Dk
///   S = gate S + k_t^T u                               gate exp(g_t), one per row for gla and kda; 1 without gates
///   o = scale q_t S                                    the second sum over Dk
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] in bf16; g, beta, S [B, H, Dk, Dv] and z [B, H, Dk] in fp32; all in
/// device memory. All sums are in fp32.
/// Thread mapping: block (b, h, tile) has 128 threads and 32 columns of the state. A thread has 4 neighbouring columns
/// of every 16th row: 8 float4 for Dk = 128. Neighbouring lanes have neighbouring columns, so that a row's 128 bytes
/// are whole sectors of memory. Sums over rows go through registers, lanes, and shared memory.
/// Resources: 4 Dk / 16 registers per thread for the state; 4 KB of shared memory.
/// Work: 5 Dk Dv operations per head and token, 7 Dk Dv in the delta rules.
/// Bytes: the state is read once and written once, 8 Dk Dv; v and o once; q, k and the gates once per tile, after the
/// first tile from the second-level cache.
/// Bound by: memory.
/// Requires: Dk <= 256, Dv a multiple of 4 and states aligned to 16 bytes.
/// Weakness: one launch per token. With few states there are few blocks, and most multiprocessors are idle.
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
__global__ void __launch_bounds__(kThreads) step_in_registers_kernel(Bf16Arguments a, States states, int t) {
  __shared__ float q_row[kMaxKeyDim], k_row[kMaxKeyDim], gates[has_row_gates(kRule) ? kMaxKeyDim : 1];
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
    if (row(i) >= a.Dk || j >= a.Dv) continue;
    store_global(reinterpret_cast<float4*>(states.new_S.row(b, h, row(i)) + j), S[i]);
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
  return Dk <= 32    ? step_in_registers_kernel<kRule, 2>
         : Dk <= 64  ? step_in_registers_kernel<kRule, 4>
         : Dk <= 128 ? step_in_registers_kernel<kRule, 8>
                     : step_in_registers_kernel<kRule, 16>;
}

}  // namespace

template <Rule kRule>
void step_in_registers(const Bf16Arguments& a) {
  const auto blocks = unsigned(std::int64_t(a.B) * a.H * ceil_div(a.Dv, kColumns));
  prompt_then_tokens<kRule>(a, [&](const States& states, int t) {
    launch(kernel_for<kRule>(a.Dk), {blocks, kThreads}, a, states, t);
  });
}

TUTORIAL_DECODE_WITH_ALL_RULES(step_in_registers, Bf16Arguments);

}  // namespace tutorial::decode
