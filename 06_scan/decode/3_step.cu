/// @file
/// Stage 3, `step`: one token at a time.
///
/// Idea: after the prompt a token is a read and a write of the state, and nothing else counts: 8 bytes an element for
/// six operations. So the kernel is a copy that computes on the way. A thread has its part of the state in registers,
/// and starts all its loads before it waits for the first.
/// Mends: stage 2 needs all tokens; a chunk of one token is a tile that is almost empty. Same: the operator, and the
/// prompt, which is stage 2.
///
///   u = v_t, or beta_t (v_t - k_t S) in the delta rule: the first sum over Dk
///   S = gate S + k_t^T u                               gate exp(g_t), one a row for gla, 1 without gates
///   o = scale q_t S                                    the second sum over Dk
///
/// with phi(q_t) and phi(k_t) in the normalised form, z = z + phi(k_t) and o divided by phi(q_t) . z + eps.
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] in bf16; g, beta, S [B, H, Dk, Dv] and z [B, H, Dk] in fp32; all in
/// device memory. All sums are in fp32.
/// Who does what: block (b, h, tile) has 128 threads and 32 columns of the state (or 8, below), all of its rows. A
/// thread has 4 neighbouring columns of every 16th (64th) row: 8 float4 for Dk = 128. Neighbouring lanes have
/// neighbouring columns, so that a row's 128 (32) bytes are whole sectors of memory. q, k and the gates pass through
/// shared memory, where each is converted, and each exponential taken, once a block. Sums over rows go through
/// registers, lanes, and shared memory. Two barriers, three in the delta rule; the new state is on its way to memory
/// before the last one.
/// In place: from the second token on S is read where it is written, each element by the thread that writes it. z is
/// read by all blocks of a head and written by one, so it alternates between two places, such that the last is final_z.
/// How wide a tile: 32 columns where that gives every multiprocessor at least 4 blocks, else 8: a few states are spread
/// over four times as many blocks.
/// Resources: 4 Dk / 16 registers for the state in the wide tile, 4 Dk / 64 in the narrow one; up to 2.2 KB of shared
/// memory for Dk = 128.
/// Work: 3 Dk Dv multiply-adds or as many instructions a token and head, 4 Dk Dv in the delta rule.
/// Bytes: the state once in, once out: 8 Dk Dv; v and o once; q, k and the gates once for each tile, from the
/// second-level cache after the first.
/// Limit: memory. Needs: Dk <= 256. Where Dv or a stride is no multiple of 4, the state moves in pieces of 4 bytes.
/// Weakness: a launch a token. With few states its latency counts more than its bytes: a CUDA graph, or a kernel that
/// does all layers, would help.
/// Sources: stage 1's.

#include <cuda_runtime.h>

#include <climits>
#include <utility>

#include "01_linear_attention/feature_map.hpp"
#include "06_scan/decode.hpp"
#include "06_scan/decode/chapters.hpp"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"

namespace tutorial::decode {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kMaxKeyDim = 256;
constexpr int kBlocksPerMultiprocessor = 4;  // at least, for the wide tile

/// Where a token finds the states and where it leaves them.
struct States {
  View<const float> S;  ///< data is null where S = 0
  const float* z;       ///< null where z = 0
  View<float> new_S;    ///< may be S
  float* new_z;         ///< may not be z
  bool in_fours;        ///< rows of both are aligned to 16 bytes, and Dv is a multiple of 4
};

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
/// @tparam kQuads of columns of a block: 8 or 2
/// @tparam kRows of a thread: kRows kThreads / kQuads >= Dk
template <Rule kRule, int kQuads, int kRows>
__global__ void __launch_bounds__(kThreads) step_kernel(HalfArguments a, States states, int t) {
  constexpr bool kGates = kRule == Rule::simple_gla || kRule == Rule::gla;
  constexpr bool kDelta = kRule == Rule::delta_rule, kNormalize = kRule == Rule::normalized;
  constexpr int kColumns = 4 * kQuads, kRowsAtOnce = kThreads / kQuads, kAllRows = kRows * kRowsAtOnce;
  constexpr int kShare = (kAllRows - 1) / kThreads + 1;  // elements of q and of k that a thread fetches
  __shared__ float q_row[kAllRows], k_row[kAllRows], gates[kRule == Rule::gla ? kAllRows : 1];
  __shared__ float v_row[kColumns], denominators[kWarps], step_size;
  __shared__ float sums[kWarps][kColumns], key_sums[kDelta ? kWarps : 1][kColumns];

  const int tiles = (a.Dv - 1) / kColumns + 1;
  const int tile = int(blockIdx.x) % tiles, head = int(blockIdx.x) / tiles, b = head / a.H, h = head % a.H;
  const int thread = int(threadIdx.x), quad = thread % kQuads, first_row = thread / kQuads;
  const int first = tile * kColumns, j = first + 4 * quad;

  // The state first: nothing that follows waits for a load before these are all under way.
  float S[kRows][4] = {};
  const auto row = [&](int i) { return first_row + i * kRowsAtOnce; };
  const float* from = states.S.data ? states.S.row(b, h, first_row) + j : nullptr;
  if (from && states.in_fours) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (row(i) >= a.Dk || j >= a.Dv) continue;
      const float4 s = load_for_update(reinterpret_cast<const float4*>(from + i * kRowsAtOnce * states.S.stride_l));
      S[i][0] = s.x, S[i][1] = s.y, S[i][2] = s.z, S[i][3] = s.w;
    }
  } else if (from) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (row(i) < a.Dk && j + c < a.Dv) S[i][c] = load_for_update(from + i * kRowsAtOnce * states.S.stride_l + c);
      }
    }
  }

  // The small numbers, as they are: converting one here would be to wait for it before the next is asked for.
  const int key_count = kNormalize && a.key_lengths ? load_global(&a.key_lengths[b]) : a.L;
  __nv_bfloat16 q[kShare] = {}, k[kShare] = {}, v{};
  float own[kShare] = {}, scalar = 0;  // own: the row's logarithm of a gate, or its z
#pragma unroll
  for (int n = 0; n < kShare; ++n) {
    const int d = thread + n * kThreads;
    if (d >= a.Dk) continue;
    q[n] = load_global(a.q.row(b, h, t) + d);
    k[n] = load_global(a.k.row(b, h, t) + d);
    if constexpr (kRule == Rule::gla) own[n] = load_global(a.g.row(b, h, t) + d);
    if constexpr (kNormalize) own[n] = states.z ? load_global(&states.z[std::int64_t(head) * a.Dk + d]) : 0.0f;
  }
  if (thread < kColumns && first + thread < a.Dv) v = load_global(a.v.row(b, h, t) + first + thread);
  if constexpr (kRule == Rule::simple_gla) {
    if (thread == 0) scalar = load_global(a.g.row(b, h, t));
  } else if constexpr (kDelta) {
    if (thread == 0) scalar = load_global(a.beta.row(b, h, t));
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
    if constexpr (kRule == Rule::gla) gates[d] = expf(own[n]);
  }
  if (thread < kColumns) v_row[thread] = float(v);
  if (thread == 0) step_size = kRule == Rule::simple_gla ? expf(scalar) : scalar;
  if constexpr (kNormalize) {
    denominator = warp_sum(denominator);
    if (thread % 32 == 0) denominators[thread / 32] = denominator;
  }
  __syncthreads();

  float u[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) u[c] = v_row[4 * quad + c];
  if constexpr (kDelta) {
    float answer[4] = {};  // k_t S
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) answer[c] += k_row[row(i)] * S[i][c];
    }
    sum_over_rows<kQuads>(answer, key_sums);
    __syncthreads();
#pragma unroll
    for (int c = 0; c < 4; ++c) u[c] = step_size * (u[c] - sum_of_warps<kQuads>(key_sums, 4 * quad + c));
  }

  float o[4] = {};
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float q_d = q_row[row(i)], k_d = k_row[row(i)];
    float gate = 1;
    if constexpr (kGates) gate = kRule == Rule::gla ? gates[row(i)] : step_size;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      S[i][c] = gate * S[i][c] + k_d * u[c];
      o[c] += q_d * S[i][c];
    }
  }
  float* const first_to = states.new_S.row(b, h, first_row) + j;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (row(i) >= a.Dk || j >= a.Dv) continue;
    float* to = first_to + i * kRowsAtOnce * states.new_S.stride_l;
    if (states.in_fours) {
      store_global(reinterpret_cast<float4*>(to), make_float4(S[i][0], S[i][1], S[i][2], S[i][3]));
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (j + c < a.Dv) store_global(to + c, S[i][c]);
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

template <Rule kRule>
auto kernel_for(Tile tile, int Dk) {
  if (tile == Tile::narrow) return Dk <= 128 ? step_kernel<kRule, 2, 2> : step_kernel<kRule, 2, 4>;
  return Dk <= 32    ? step_kernel<kRule, 8, 2>
         : Dk <= 64  ? step_kernel<kRule, 8, 4>
         : Dk <= 128 ? step_kernel<kRule, 8, 8>
                     : step_kernel<kRule, 8, 16>;
}

std::int64_t tile_count(const HalfArguments& a, Tile tile) {
  return (a.Dv - 1) / int(tile) + 1;
}

std::int64_t block_count(const HalfArguments& a, Tile tile) {
  return std::int64_t(a.B) * a.H * tile_count(a, tile);
}

/// Whether rows of a state can be read and written in pieces of 16 bytes.
template <class T>
bool in_fours(const View<T>& S, int Dv) {
  return Dv % 4 == 0 && S.stride_b % 4 == 0 && S.stride_h % 4 == 0 && S.stride_l % 4 == 0 &&
         reinterpret_cast<std::uintptr_t>(S.data) % 16 == 0;
}

std::int64_t z_count(const HalfArguments& a) {
  return std::int64_t(a.B) * a.H * a.Dk;
}

/// Whether the tokens need a second place for z.
bool needs_second_z(Rule rule, const HalfArguments& a) {
  const int writers = a.L - a.P + (a.P > 0 ? 1 : 0);  // one after the other
  return rule == Rule::normalized && writers > 1;
}

}  // namespace

template <Rule kRule>
void step_with(Tile tile, const HalfArguments& a) {
  float* places[2] = {a.final_z, nullptr};  // of z, by the number of tokens that are still to come, modulo 2
  if (needs_second_z(kRule, a)) places[1] = workspace<float>("decode: z", std::size_t(z_count(a)));
  const View<const float> S{a.final_state.data, a.final_state.stride_b, a.final_state.stride_h, a.final_state.stride_l};
  States states{a.initial_state, a.initial_z, a.final_state, nullptr, false};
  if (a.P > 0) {
    HalfArguments prompt = prompt_of(a);
    prompt.final_z = places[(a.L - a.P) % 2];
    {
      const PartListener nobody([](const char*) {});  // the prompt is one part, whatever its own are
      prefill<kRule>(prompt);
    }
    if (a.P < a.L) end_part("prompt");
    states.S = S;
    states.z = prompt.final_z;
  }
  for (int t = a.P; t < a.L; ++t) {
    states.new_z = places[(a.L - 1 - t) % 2];
    states.in_fours = in_fours(states.S, a.Dv) && in_fours(states.new_S, a.Dv);
    launch(kernel_for<kRule>(tile, a.Dk), {unsigned(block_count(a, tile)), kThreads}, a, states, t);
    states.S = S;
    states.z = states.new_z;
  }
  if (a.P > 0 && a.P < a.L) end_part("tokens");
}

template <Rule kRule>
void step(const HalfArguments& a) {
  step_with<kRule>(step_tile(a), a);
}

Tile step_tile(const HalfArguments& a) {
  const bool many = block_count(a, Tile::wide) >= kBlocksPerMultiprocessor * multiprocessor_count();
  return many ? Tile::wide : Tile::narrow;
}

template <Rule kRule>
std::string step_limits(const HalfArguments& a) {
  if (a.Dk > kMaxKeyDim) return "Dk > 256: the state's columns would not fit into the registers of 16 threads";
  if (block_count(a, Tile::narrow) > INT_MAX) return "B H > 2^31 - 1 tiles of 8 columns: the grid";
  return a.P > 0 ? prefill_limits<kRule>(prompt_of(a)) : "";
}

template <Rule kRule>
std::string step_note(const HalfArguments& a) {
  const std::string tile = std::to_string(int(step_tile(a))) + " columns a block";
  const std::string prompt = a.P > 0 ? "prompt: " + prefill_note<kRule>(prompt_of(a)) : "no prompt";
  return a.P == a.L ? prompt : prompt + "; then " + tile;
}

template <Rule kRule>
std::int64_t step_memory(const HalfArguments& a) {
  const std::int64_t second = needs_second_z(kRule, a) ? std::int64_t(sizeof(float)) * z_count(a) : 0;
  return second + (a.P > 0 ? prefill_memory<kRule>(prompt_of(a)) : 0);
}

template <Rule kRule>
std::int64_t step_moved(const HalfArguments& a) {
  const std::int64_t prompt = a.P > 0 ? prefill_moved<kRule>(prompt_of(a)) : 0;
  if (prompt < 0) return -1;
  const std::int64_t heads = std::int64_t(a.B) * a.H, tokens = a.L - a.P, tiles = tile_count(a, step_tile(a));
  // A block's q and k, and its gates or beta.
  std::int64_t of_tile = 4 * std::int64_t(a.Dk);
  if (kRule == Rule::gla) of_tile += 4 * std::int64_t(a.Dk);
  if (kRule == Rule::simple_gla || kRule == Rule::delta_rule) of_tile += 4;
  if (kRule == Rule::normalized && a.key_lengths) of_tile += 4 * kThreads;
  const std::int64_t state = 4 * std::int64_t(a.Dk) * a.Dv, z = kRule == Rule::normalized ? 4 * std::int64_t(a.Dk) : 0;
  std::int64_t bytes = tokens * (tiles * (of_tile + z) + z + 4 * std::int64_t(a.Dv) + 2 * state);
  if (tokens > 0 && a.P == 0 && !a.initial_state.data) bytes -= state;  // zeros are not read
  if (tokens > 0 && a.P == 0 && !a.initial_z) bytes -= tiles * z;
  return prompt + heads * bytes;
}

std::int64_t token_bytes(Rule rule, std::int64_t heads, std::int64_t Dk, std::int64_t Dv) {
  const std::int64_t own = rule == Rule::gla ? 4 * Dk : rule == Rule::normalized ? 8 * Dk : 4;  // gates, z or beta
  return heads * (8 * Dk * Dv + 4 * Dk + 4 * Dv + own);
}

#define INSTANTIATE(RULE)                                        \
  template void step<RULE>(const HalfArguments&);                \
  template void step_with<RULE>(Tile, const HalfArguments&);     \
  template std::string step_limits<RULE>(const HalfArguments&);  \
  template std::string step_note<RULE>(const HalfArguments&);    \
  template std::int64_t step_memory<RULE>(const HalfArguments&); \
  template std::int64_t step_moved<RULE>(const HalfArguments&)
INSTANTIATE(Rule::simple_gla);
INSTANTIATE(Rule::gla);
INSTANTIATE(Rule::delta_rule);
INSTANTIATE(Rule::normalized);
#undef INSTANTIATE

}  // namespace tutorial::decode
