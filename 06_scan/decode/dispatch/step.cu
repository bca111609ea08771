/// @file
/// The kernel of `step_in_registers` for every width, alignment and number of heads.
///
/// The tile of a block is 32 columns if that gives every multiprocessor at least 4 blocks. Otherwise it is 8 columns,
/// which spreads few states over four times as many blocks and leaves room in registers for keys of more than 256 columns. A
/// thread has 4 neighbouring columns of every 16th (64th) row.
///
/// The small numbers, q, k, v and the gates, are loaded after all loads of the state have been started, and converted
/// only after the loads of all of them have been started. The new state is on its way to memory before the last
/// barrier.
///
/// If Dv or a stride is no multiple of 4, the state moves in pieces of 4 bytes.

#include <cuda_runtime.h>

#include <cstdint>

#include "06_scan/decode/dispatch/step.hpp"
#include "06_scan/decode/prompt_then_tokens.cuh"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/feature_map.hpp"
#include "common/tile/requirements.hpp"

namespace tutorial::decode {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kBlocksPerMultiprocessor = 4;  // at least, for the wide tile

/// Four neighbouring elements of a state in memory.
__device__ __forceinline__ float4 load_four(const float* address) {
  return load_for_update(reinterpret_cast<const float4*>(address));
}
__device__ __forceinline__ float4 load_four(const __nv_bfloat16* address) {
  const uint2 two = load_for_update(reinterpret_cast<const uint2*>(address));
  const float2 first = unpack(two.x), second = unpack(two.y);
  return make_float4(first.x, first.y, second.x, second.y);
}

/// In bf16 each is rounded to nearest.
__device__ __forceinline__ void store_four(float* address, float4 x) {
  store_global(reinterpret_cast<float4*>(address), x);
}
__device__ __forceinline__ void store_four(__nv_bfloat16* address, float4 x) {
  store_global(reinterpret_cast<uint2*>(address), make_uint2(pack(x.x, x.y), pack(x.z, x.w)));
}

/// Sums over the threads that have the same columns. After the block's next barrier sum_of_warps() has the result.
/// @param own of 4 columns, over this thread's rows
/// @param sums [kWarps][4 kQuads]
template <int kQuads>
__device__ __forceinline__ void sum_over_rows(float (&own)[4], float (*sums)[4 * kQuads]) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
#pragma unroll
    for (int flipped = 16; flipped >= kQuads; flipped /= 2) own[c] += shuffle_xor(own[c], flipped);
    if (lane < kQuads) sums[warp][4 * lane + c] = own[c];
  }
}

template <int kQuads>
__device__ __forceinline__ float sum_of_warps(const float (*sums)[4 * kQuads], int column) {
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += sums[warp][column];
  return sum;
}

/// Token t of all heads. Grid (tiles of the columns) (B H): the blocks of a head are neighbours.
/// @param is_vector rows of the states are aligned to 16 bytes, and Dv is a multiple of 4
/// @tparam kQuads of columns of a block: 8 or 2
/// @tparam kRows of a thread: kRows kThreads / kQuads >= Dk
/// @tparam State the type of the state in memory
template <Rule kRule, class State, int kQuads, int kRows>
__global__ void __launch_bounds__(kThreads)
    step_kernel(Bf16Arguments a, StatesIn<State> states, bool is_vector, int t) {
  constexpr bool kGates = has_scalar_gate(kRule) || has_row_gates(kRule);
  constexpr bool kDelta = replaces_answer(kRule), kNormalize = kRule == Rule::normalized;
  constexpr int kColumns = 4 * kQuads, kRowsAtOnce = kThreads / kQuads, kAllRows = kRows * kRowsAtOnce;
  constexpr int kShare = (kAllRows - 1) / kThreads + 1;  // elements of q and of k that a thread fetches
  __shared__ float q_row[kAllRows], k_row[kAllRows], gates[has_row_gates(kRule) ? kAllRows : 1];
  __shared__ float v_row[kColumns], denominators[kWarps], gate_of_all, step_size;
  __shared__ float sums[kWarps][kColumns], key_sums[kDelta ? kWarps : 1][kColumns];

  const int tiles = (a.Dv - 1) / kColumns + 1;
  const int tile = int(blockIdx.x) % tiles, head = int(blockIdx.x) / tiles, b = head / a.H, h = head % a.H;
  const int thread = int(threadIdx.x), quad = thread % kQuads, first_row = thread / kQuads;
  const int first = tile * kColumns, j = first + 4 * quad;
  const int slot = states.slots ? load_global(states.slots + b) : b;
  if (slot < 0) {
    if (thread < kColumns && first + thread < a.Dv)
      store_global(a.o.row(b, h, t) + first + thread, __nv_bfloat16(0.0f));
    return;
  }

  // The state comes first: nothing after this waits for a load before all of these have been started.
  float S[kRows][4] = {};
  const auto row = [&](int i) { return first_row + i * kRowsAtOnce; };
  const State* from = states.S.data ? states.S.row(slot, h, first_row) + j : nullptr;
  if (from && is_vector) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (row(i) >= a.Dk || j >= a.Dv) continue;
      const float4 s = load_four(from + i * kRowsAtOnce * states.S.stride_l);
      S[i][0] = s.x, S[i][1] = s.y, S[i][2] = s.z, S[i][3] = s.w;
    }
  } else if (from) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (row(i) < a.Dk && j + c < a.Dv)
          S[i][c] = float(load_for_update(from + i * kRowsAtOnce * states.S.stride_l + c));
      }
    }
  }

  // The small numbers are loaded without conversion: converting one here would wait for it before the next load starts.
  const int key_count = kNormalize && a.key_lengths ? load_global(&a.key_lengths[b]) : a.L;
  __nv_bfloat16 q[kShare] = {}, k[kShare] = {}, v{};
  float own[kShare] = {}, g = 0, beta = 0;  // own: the row's logarithm of a gate, or its z
#pragma unroll
  for (int n = 0; n < kShare; ++n) {
    const int d = thread + n * kThreads;
    if (d >= a.Dk) continue;
    q[n] = load_global(a.q.row(b, h, t) + d);
    k[n] = load_global(a.k.row(b, h, t) + d);
    if constexpr (has_row_gates(kRule)) own[n] = load_global(a.g.row(b, h, t) + d);
    if constexpr (kNormalize) own[n] = states.z ? load_global(&states.z[std::int64_t(head) * a.Dk + d]) : 0.0f;
  }
  if (thread < kColumns && first + thread < a.Dv) v = load_global(a.v.row(b, h, t) + first + thread);
  if (thread == 0) {
    if constexpr (has_scalar_gate(kRule)) g = load_global(a.g.row(b, h, t));
    if constexpr (kDelta) beta = load_global(a.beta.row(b, h, t));
  }

  float denominator = 0;
#pragma unroll
  for (int n = 0; n < kShare; ++n) {
    const int d = thread + n * kThreads;
    float q_d = float(q[n]), k_d = float(k[n]);
    if constexpr (kNormalize) {
      q_d = d < a.Dk ? phi(q_d) : 0.0f;
      k_d = d < a.Dk && t < key_count ? phi(k_d) : 0.0f;
      own[n] += k_d;
      denominator += q_d * own[n];
      if (tile == 0 && d < a.Dk) store_global(&states.new_z[std::int64_t(head) * a.Dk + d], own[n]);
    }
    if (d >= kAllRows) continue;
    q_row[d] = a.scale * q_d;
    k_row[d] = k_d;
    if constexpr (has_row_gates(kRule)) gates[d] = expf(own[n]);
  }
  if (thread < kColumns) v_row[thread] = float(v);
  if (thread == 0) {
    gate_of_all = expf(g);
    step_size = beta;
  }
  if constexpr (kNormalize) {
    denominator = warp_sum(denominator);
    if (thread % 32 == 0) denominators[thread / 32] = denominator;
  }
  __syncthreads();

  float u[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) u[c] = v_row[4 * quad + c];
  if constexpr (kDelta) {
    float answer[4] = {};  // k_t S; gates of rows multiply k_t, a gate of all rows the sum
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float k_d = k_row[row(i)] * (has_row_gates(kRule) ? gates[row(i)] : 1.0f);
#pragma unroll
      for (int c = 0; c < 4; ++c) answer[c] += k_d * S[i][c];
    }
    sum_over_rows<kQuads>(answer, key_sums);
    __syncthreads();
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      u[c] = step_size * (u[c] - gate_of_all * sum_of_warps<kQuads>(key_sums, 4 * quad + c));
    }
  }

  float o[4] = {};
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float q_d = q_row[row(i)], k_d = k_row[row(i)];
    float gate = 1;
    if constexpr (kGates) gate = has_row_gates(kRule) ? gates[row(i)] : gate_of_all;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      S[i][c] = gate * S[i][c] + k_d * u[c];
      o[c] += q_d * S[i][c];
    }
  }
  State* const first_to = states.new_S.row(slot, h, first_row) + j;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (row(i) >= a.Dk || j >= a.Dv) continue;
    State* to = first_to + i * kRowsAtOnce * states.new_S.stride_l;
    if (is_vector) {
      store_four(to, make_float4(S[i][0], S[i][1], S[i][2], S[i][3]));
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (j + c < a.Dv) store_global(to + c, State(S[i][c]));
      }
    }
  }

  sum_over_rows<kQuads>(o, sums);
  __syncthreads();
  if (thread >= kColumns || first + thread >= a.Dv) return;
  float result = sum_of_warps<kQuads>(sums, thread);
  if constexpr (kNormalize) {
    denominator = a.eps;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) denominator += denominators[warp];
    result /= denominator;
  }
  store_global(a.o.row(b, h, t) + first + thread, __nv_bfloat16(result));
}

template <Rule kRule, class State>
auto kernel_for(Tile tile, int Dk) {
  if (tile == Tile::narrow) {
    return Dk <= 128   ? step_kernel<kRule, State, 2, 2>
           : Dk <= 256 ? step_kernel<kRule, State, 2, 4>
           : Dk <= 512 ? step_kernel<kRule, State, 2, 8>
                       : step_kernel<kRule, State, 2, 16>;
  }
  return Dk <= 32    ? step_kernel<kRule, State, 8, 2>
         : Dk <= 64  ? step_kernel<kRule, State, 8, 4>
         : Dk <= 128 ? step_kernel<kRule, State, 8, 8>
                     : step_kernel<kRule, State, 8, 16>;
}

}  // namespace

template <Rule kRule>
void planned_step(const Bf16Arguments& a, Tile tile) {
  prompt_then_tokens<kRule>(a, [&](const States& states, int t) {
    const bool is_vector =
        a.Dv % 4 == 0 && tutorial::tile::has_aligned_rows(states.S) && tutorial::tile::has_aligned_rows(states.new_S);
    launch(kernel_for<kRule, float>(tile, a.Dk), {unsigned(block_count(a, tile)), kThreads}, a, states, is_vector, t);
  });
}

template <Rule kRule, class State>
void pooled_steps(const Bf16Arguments& a, Tile tile, const View<State>& pool, const std::int32_t* indices) {
  const bool is_vector = a.Dv % 4 == 0 && tutorial::tile::has_aligned_rows(pool);
  const StatesIn<State> states{read_only(pool), nullptr, pool, nullptr, indices};
  for (int t = a.P; t < a.L; ++t) {
    launch(kernel_for<kRule, State>(tile, a.Dk), {unsigned(block_count(a, tile)), kThreads}, a, states, is_vector, t);
  }
}

Tile select_tile(const Bf16Arguments& a) {
  const bool many = block_count(a, Tile::wide) >= kBlocksPerMultiprocessor * multiprocessor_count();
  return many && a.Dk <= kMaxKeyDimOfWideTile ? Tile::wide : Tile::narrow;
}

template void planned_step<Rule::simple_gla>(const Bf16Arguments&, Tile);
template void planned_step<Rule::gla>(const Bf16Arguments&, Tile);
template void planned_step<Rule::delta_rule>(const Bf16Arguments&, Tile);
template void planned_step<Rule::normalized>(const Bf16Arguments&, Tile);
template void planned_step<Rule::gated_delta_rule>(const Bf16Arguments&, Tile);
template void planned_step<Rule::kda>(const Bf16Arguments&, Tile);

#define INSTANTIATE(RULE)                                                                                \
  template void pooled_steps<RULE>(const Bf16Arguments&, Tile, const View<float>&, const std::int32_t*); \
  template void pooled_steps<RULE>(const Bf16Arguments&, Tile, const View<__nv_bfloat16>&, const std::int32_t*)
INSTANTIATE(Rule::simple_gla);
INSTANTIATE(Rule::gla);
INSTANTIATE(Rule::delta_rule);
INSTANTIATE(Rule::gated_delta_rule);
INSTANTIATE(Rule::kda);
#undef INSTANTIATE

}  // namespace tutorial::decode
