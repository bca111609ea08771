#pragma once
/// @file
/// The walk behind dispatch where warpgroups have no products of their own, and a block may have too little shared
/// memory for dispatch/specialized_warps.cu. It is `fused` (delta_rule/8_fused.cu) with three changes:
///
/// - A block has two chunks of everything but Q. The next Q is loaded when all warps have multiplied the state by this
///   one, and arrives while they compute v_new and the new state. O goes to memory through the place of V. So at Dk =
///   128 a block needs 95 KB instead of 118 KB, and an RTX card has 99 KB.
/// - Keys are normalised if the caller asks for it; warp_products.cuh says where their factors go. A state may decay, for
///   gated_delta_rule; a type `Gates` has what the vectors of a chunk (prepare.hpp) do to its products.
/// - The sequence is cut into segments, which the GPU walks at the same time, as in `segments`
///   (delta_rule/13_segments.cu). That file explains why a walk over the values V ends with H, and one over the values
///   -K with E = Phi - I (Psi there), and why it is kept instead of Phi. gated_delta_rule/dispatch/segments.cu has the same
///   with the decay Gamma of a segment, which is 1 without gates.
///
///     kernel 1, maps     all segments but the last:  V -> H_s,  -K -> E_s      from zeros, the first from S_0; no outputs
///     kernel 2, carry    start of s + 1 = Gamma_s S + E_s S + H_s,  S = start of s     one segment after the other
///     kernel 3, walk     all segments: the equation of `fused`, each from its start
///
/// With a single segment only kernel 3 runs. It also walks packed sequences, the longest first, with a block for each of them.
///
/// Kernel 1: a block has 128 columns of V or all columns of K, 16 per warp. Columns of K need no tile of their own: they
/// are in the tile of K that the block has anyway. The sums of the residual begin with +K, since the values are -K.
/// Normalised keys diag(f) K have the values -diag(f) K, so the residual is -diag(f) (K + K E). With gates, K + K E is
/// Gamma K + K E, with the Gamma up to the chunk, and the factors of the keys contain their decays.
///
/// Kernel 2: a step is a product with a matrix [Dk, Dk], and the next step waits for it. So a block has 16 columns of
/// the state only, and warp w has rows 16 w to 16 w + 15 of them: 16 mma per warp and step at Dk = 128. It reads its
/// rows of E as the B fragments that kernel 1 has written, with no detour through shared memory, three steps ahead. What
/// the warps exchange is the rounded state, 512 bytes per warp, and they meet at one barrier per step. The state itself
/// stays in fp32.
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16; beta [B, H, L], S_0 and final_state [B, H, Dk, Dv] fp32. For
/// each segment but the last, H [Dk, Dv] fp32, whose place the start of the next segment takes, and E [Dk, Dk] bf16 in
/// device memory.
/// Thread mapping: kernel 1: block (tile of [V | K] of a segment, h, b), 8 warps. Kernel 2: block (16 columns, h, b),
/// Dk / 16 warps. Kernel 3: block (tile of 64 columns of a segment, h, b), 4 warps.
/// Resources: at Dk = 128, 85 KB, 8 KB and 95 KB of shared memory; of an RTX card one block per multiprocessor for
/// kernels 1 and 3.
/// Work: that of `fused`; (4 Dk + 160) (Dk + Dv) operations per position for kernel 1; 2 Dk^2 Dv per segment for kernel
/// 2.
/// Bytes: those of `fused`; kernel 1 reads V, and K and T once per 128 columns of [V | K].
/// Bound by: with few heads the chains of the three kernels; with many heads latency, as `fused`.
/// Requires: Dk <= 256 and Dv <= 512, both multiples of 16; rows aligned to 16 bytes; with Dk > 128 a single segment, and
/// 143 KB of shared memory; |k| < 1e18, so that k . k is finite.
/// Weakness: a block with Dk = 128 is alone on a multiprocessor of an RTX card, so its four warps wait for each other at
/// two barriers per chunk with no other work for the tensor cores.
/// Sources: those of `fused` and `segments`.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/chunk/packed_heads.cuh"
#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/chunk/warp_products.cuh"
#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/warp_state.cuh"
#include "common/ceil_div.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/movmatrix.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/launch_plan.hpp"
#include "common/tile/load_tile.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/state.cuh"

namespace tutorial::delta_rule::segmented {
namespace {

using namespace tile;  // tiles, states and plans

inline constexpr int kMapWarps = 8, kMapThreads = 32 * kMapWarps;
inline constexpr int kMapColumns = 16 * kMapWarps;  // of V, or all of K
inline constexpr int kCarryColumns = 16;            // of a block
inline constexpr int kStepsAhead = 3;               // whose loads are under way

/// H, E and Gamma of all segments but the last.
struct Maps {
  int count;           ///< segments of a head but the last
  View<float> states;  ///< [B, H, count Dk, Dv]: H, later the start of the following segment
  uint4* transitions;  ///< [B, H, count, Dk / 16, Dk / 16, 32]: block (d, e) of E, as the B fragment of its transpose
  float* decays;       ///< [B, H, count]: Gamma; null without gates. E and Gamma of the first segment are not used

  /// Bytes of all of them.
  static std::int64_t bytes(const Bf16Arguments& a, int count, bool has_gates) {
    return std::int64_t(a.B) * a.H * count * (4 * a.Dk * a.Dv + 2 * a.Dk * a.Dk + (has_gates ? 4 : 0));
  }

  /// Allocates the memory.
  /// @throws CudaError if it cannot be allocated
  Maps(const Bf16Arguments& a, int count, bool has_gates) : count(count) {
    const std::int64_t segments = std::int64_t(a.B) * a.H * count;
    auto* memory = workspace<float>("delta_rule: segments of a walk", std::size_t(bytes(a, count, has_gates)) / 4);
    states = packed(memory, a.H, std::int64_t(count) * a.Dk, a.Dv);
    memory += segments * a.Dk * a.Dv;
    transitions = reinterpret_cast<uint4*>(memory);
    decays = has_gates ? memory + segments * a.Dk * a.Dk / 2 : nullptr;
  }

  /// The state of this segment, as a View whose rows are those of the state.
  __device__ __forceinline__ View<float> state(const Bf16Arguments& a, int segment) const {
    return {states.row(0, 0, std::int64_t(segment) * a.Dk), states.stride_b, states.stride_h, states.stride_l};
  }
  /// The number of a segment among those of all heads.
  __device__ __forceinline__ std::int64_t number(const Bf16Arguments& a, int b, int h, int segment) const {
    return (std::int64_t(b) * a.H + h) * count + segment;
  }
  /// The lane's part of block (d, 0) of E; blocks of a row are 32 units apart.
  __device__ __forceinline__ uint4* transition(const Bf16Arguments& a, int b, int h, int segment, int d) const {
    const int blocks = a.Dk / kBlock;
    return transitions + (number(a, b, h, segment) * blocks + d) * blocks * 32 + fresh_lane();
  }
};

/// Starts the copies of a chunk's vectors to shared memory.
template <class Gates>
__device__ __forceinline__ void load_vectors_async(int thread, float* to, const Prepared& prepared,
                                                   std::int64_t chunk) {
  const int i = 4 * thread;
  if (i < Gates::kFloats) cp_async<16>(to + i, prepared.factors + chunk * Gates::kFloats + i);
}

/// A chunk in the shared memory of kernel 1.
template <int kDk, class Gates>
struct MapChunk {
  uint4 T[2 * kBlockUnits];
  __nv_bfloat16 K[kChunk * kDk], V[2][kChunk * 64];
  float vectors[Gates::kFloats];
};

/// Kernel 1. Grid (tiles of [V | K] of all segments but the last, H, B).
template <int kDk, class Gates>
__global__ void __launch_bounds__(kMapThreads, 1)
    maps_kernel(Bf16Arguments a, Prepared prepared, LaunchPlan plan, Maps maps) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), key_tile = (a.Dv - 1) / kMapColumns + 1;
  const int segment = int(blockIdx.x) / (key_tile + 1), tile = int(blockIdx.x) % (key_tile + 1);
  const bool is_key = tile == key_tile;
  if (is_key && segment == 0) return;
  // 64 columns of V have a tile and the loads of a half of the warps.
  const int warp = int(threadIdx.x) / 32, half = warp / kWarps, first_of_half = tile * kMapColumns + half * 64;
  const int column = is_key ? warp * 16 : tile * kMapColumns + warp * 16;
  const bool has_columns = column < (is_key ? a.Dk : a.Dv);
  auto* chunks = dynamic_shared<MapChunk<kDk, Gates>>();  // two
  const int begin = segment * plan.length, end = begin + plan.length;
  const auto load = [&](int t) {
    MapChunk<kDk, Gates>& to = chunks[t / kChunk % 2];
    const int thread = hide_from_compiler(int(threadIdx.x)), b = hide_from_compiler(int(blockIdx.z));
    const std::int64_t chunk = (std::int64_t(b) * a.H + h) * prepared.N + t / kChunk;
    load_columns_async<kMapThreads, kDk>(thread, SwizzledTile<kDk>{to.K}, a.k.row(b, h, t), a.k.stride_l, kChunk, a.Dk);
    if (!is_key && first_of_half < a.Dv) {
      load_columns_async<kThreads, 64>(thread % kThreads, SwizzledTile<64>{to.V[half]},
                                       a.v.row(b, h, t) + first_of_half, a.v.stride_l, kChunk, a.Dv - first_of_half);
    }
    if (half == 0) load_units_async<2 * kBlockUnits>(thread, to.T, prepared.T + chunk * 2 * kBlockUnits);
    load_vectors_async<Gates>(thread, to.vectors, prepared, chunk);
    cp_async_commit();
  };
  load(begin);
  WarpState<kDk> S = {};
  if (segment == 0 && a.initial_state.data) {
    for_each_element<kDk>(S, a.initial_state, b, h, a.Dk, column, a.Dv,
                          [](float& x, const float* address) { x = load_global(address); });
  }
  float decay = 1;  // from the beginning of the segment to this chunk
  for (int t = begin; t < end; t += kChunk) {
    cp_async_wait<0>();
    __syncthreads();
    if (t + kChunk < end) load(t + kChunk);
    if (!has_columns) continue;
    MapChunk<kDk, Gates>& from = chunks[t / kChunk % 2];
    const SwizzledTile<kDk> K{from.K};
    const Gates gates{from.vectors};
    const auto pass_on_nothing = [](int, const uint4&) {};
    WarpFragments residual;
    if (is_key) {
      WarpColumns sums;
      load_negated(sums, K, column);
#pragma unroll
      for (auto& positions : sums) {
#pragma unroll
        for (float& x : positions) x *= -decay;
      }
      finish_residual<kDk>(residual, sums, K, S, pass_on_nothing, gates.of_keys());
    } else {
      gates.template subtract_product<kDk>(residual, SwizzledTile<64>{from.V[half]}, warp % kWarps * 16, K, S,
                                           pass_on_nothing);
    }
    gates.template add_v_new<kDk>(S, residual, from.T, K, pass_on_nothing);
    decay *= gates.of_chunk();
  }
  if (!has_columns) return;
  if (!is_key) {
    return for_each_element<kDk>(S, maps.state(a, segment), b, h, a.Dk, column, a.Dv,
                                 [](float& x, float* address) { store_global(address, x); });
  }
  // The warp has rows e of E^T, 16 of them.
  uint4* block = maps.transition(a, b, h, segment, 0) + warp * 32;
#pragma unroll
  for (int d = 0; d < kDk / kBlock; ++d) {
    if (d * kBlock < a.Dk) {
      const uint4 x = rounded(S[2 * d], S[2 * d + 1]);
      store_global(block, make_uint4(transpose_8x8(x.x), transpose_8x8(x.y), transpose_8x8(x.z), transpose_8x8(x.w)));
    }
    block += a.Dk / kBlock * 32;
  }
  if (Gates::kHasDecays && threadIdx.x == 0) store_global(maps.decays + maps.number(a, b, h, segment), decay);
}

/// Kernel 2: turns H of each segment into the state that the next segment starts from. Grid (tiles of 16 columns of Dv,
/// H, B); Dk / 16 warps.
template <int kDk, class Gates>
__global__ void __launch_bounds__(2 * kDk) carry_kernel(Bf16Arguments a, Maps maps) {
  constexpr int kMostBlocks = kDk / kBlock;
  /// What a step reads: H of the warp's rows, their blocks of E, and Gamma.
  struct Step {
    WarpState<kBlock> H;
    uint4 E[kMostBlocks];
    float decay;
  } steps[kStepsAhead];
  __shared__ uint4 rounded_states[2][kMostBlocks][32];
  const int b = int(blockIdx.z), h = int(blockIdx.y), blocks = a.Dk / kBlock, warp = int(threadIdx.x) / 32;
  const int first_column = int(blockIdx.x) * kCarryColumns;
  // The warp's rows of the state at an index, [16, Dv].
  const auto rows_of = [&](int index) {
    View<float> rows = maps.state(a, index);
    rows.data += warp * kBlock * rows.stride_l;
    return rows;
  };
  const auto load_rows = [&](WarpState<kBlock>& rows, int index) {
    for_each_element<kBlock>(rows, rows_of(index), b, h, kBlock, first_column, a.Dv,
                             [](float& x, const float* address) { x = load_for_update(address); });
  };
  const auto load_step = [&](Step& step, int segment) {
    if (segment >= maps.count) return;
    load_rows(step.H, segment);
    const uint4* E = maps.transition(a, b, h, segment, warp);
#pragma unroll
    for (int e = 0; e < kMostBlocks; ++e) {
      if (e < blocks) step.E[e] = load_for_update(E + e * 32);
    }
    step.decay = Gates::kHasDecays ? load_for_update(maps.decays + maps.number(a, b, h, segment)) : 1.0f;
  };
  WarpState<kBlock> S;
  load_rows(S, 0);
#pragma unroll
  for (int i = 0; i < kStepsAhead; ++i) load_step(steps[i], 1 + i);
  for (int first = 1; first < maps.count; first += kStepsAhead) {
#pragma unroll
    for (int i = 0; i < kStepsAhead; ++i) {
      const int segment = first + i, lane = fresh_lane();
      if (segment >= maps.count) break;
      uint4(&s)[kMostBlocks][32] = rounded_states[segment % 2];
      s[warp][lane] = rounded(S[0], S[1]);
      __syncthreads();
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int element = 0; element < 4; ++element) {
          S[half][element] = steps[i].decay * S[half][element] + steps[i].H[half][element];
        }
      }
#pragma unroll
      for (int e = 0; e < kMostBlocks; ++e) {
        if (e < blocks) multiply(S, 0, s[e][lane], steps[i].E[e]);
      }
      for_each_element<kBlock>(S, rows_of(segment), b, h, kBlock, first_column, a.Dv,
                               [](float& x, float* address) { store_global(address, x); });
      load_step(steps[i], segment + kStepsAhead);
    }
  }
}

/// The shared memory of kernel 3.
template <int kDk, class Gates>
struct WalkMemory {
  struct Chunk {
    uint4 T[2 * kBlockUnits], P[kBlockUnits];
    __nv_bfloat16 K[kChunk * kDk], V[kChunk * 64];  ///< V, later O on its way to memory
    float vectors[Gates::kFloats];
  } chunks[2];
  __nv_bfloat16 Q[kChunk * kDk];
};

/// Kernel 3. Grid (tiles of 64 columns of Dv of all segments, H, B), or that of packed `heads`, which have one segment.
template <class Shape, class Gates, class Heads>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    walk_kernel(Bf16Arguments a, Prepared prepared, LaunchPlan plan, Heads heads) {
  constexpr int kDk = Shape::kDk;
  if (!heads.begin(a, Shape::kDv)) return;
  BlockPart<Shape> part(extents_of(a), plan.length, int(blockIdx.x));
  if constexpr (Heads::kArePacked) {
    part.b = Heads::batch(a.B);
    prepared.T += std::int64_t(heads.first_chunk()) * 2 * kBlockUnits;
    prepared.P += std::int64_t(heads.first_chunk()) * kBlockUnits;
    prepared.factors += std::int64_t(heads.first_chunk()) * Gates::kFloats;
  }
  auto& memory = *dynamic_shared<WalkMemory<kDk, Gates>>();
  const auto load = [&](int t) {
    auto& to = memory.chunks[t / kChunk % 2];
    const int thread = hide_from_compiler(int(threadIdx.x)), b = hide_from_compiler(Heads::batch(a.B));
    const std::int64_t chunk = (std::int64_t(b) * a.H + part.h) * prepared.N + t / kChunk;
    load_units_async<2 * kBlockUnits>(thread, to.T, prepared.T + chunk * 2 * kBlockUnits);
    load_tile_async(SwizzledTile<kDk>{to.K}, a.k.row(b, part.h, t), a.k.stride_l, a.L - t, a.Dk);
    load_tile_async(SwizzledTile<64>{to.V}, a.v.row(b, part.h, t) + part.first_column, a.v.stride_l, a.L - t,
                    part.columns);
    load_units_async<kBlockUnits>(thread, to.P, prepared.P + chunk * kBlockUnits);
    load_vectors_async<Gates>(thread, to.vectors, prepared, chunk);
  };
  // Q comes last, and in one group with the rest of its chunk.
  const auto load_queries = [&](int t) {
    load_tile_async(SwizzledTile<kDk>{memory.Q}, a.q.row(hide_from_compiler(Heads::batch(a.B)), part.h, t),
                    a.q.stride_l, a.L - t, a.Dk);
    cp_async_commit();
  };
  load(part.begin);
  load_queries(part.begin);
  typename Shape::State S;
  part.load_start(S, a.initial_state, plan, extents_of(a));
  for (int t = part.begin; t < part.end; t += kChunk) {
    cp_async_wait<0>();
    __syncthreads();
    if (t + kChunk < part.end) load(t + kChunk);
    auto& from = memory.chunks[t / kChunk % 2];
    const SwizzledTile<kDk> K{from.K}, Q{memory.Q};
    const Gates gates{from.vectors};

    WarpColumns O = {};
    const auto pass_on_state = [&](int d, const uint4& s) { add_state_rows(O, Q, d, s); };
    const auto pass_on_v_new = [&](int i, const uint4& v_new) { add_scores(O, from.P, i, v_new); };
    WarpFragments residual;
    gates.template subtract_product<kDk>(residual, SwizzledTile<64>{from.V}, warp_index() * 16, K, S[0], pass_on_state);
    gates.decay_outputs(O);
    __syncthreads();  // no warp reads Q or V any more
    if (t + kChunk < part.end) load_queries(t + kChunk);
    gates.template add_v_new<kDk>(S[0], residual, from.T, K, pass_on_v_new);
    const int warp_column = warp_index() * 16;
    store_warp_output(a.o.row(part.b, part.h, t) + part.first_column + warp_column, a.o.stride_l, a.L - t,
                      part.columns - warp_column, O, a.scale, from.V + kChunk * warp_column);
  }
  if (part.end == a.L && a.final_state.data) {
    store_state<Shape>(a.final_state.row(part.b, part.h, 0) + part.first_column, S, a.final_state.stride_l, a.Dk,
                       part.columns);
  }
}

/// Kernels 1 and 2. @return the start of each segment but the first
template <int kDk, class Gates>
const float* find_starts(const Bf16Arguments& a, const Prepared& prepared, const LaunchPlan& plan) {
  const Maps maps(a, plan.segments - 1, Gates::kHasDecays);
  const auto grid = [&](int blocks) { return dim3(unsigned(blocks), unsigned(a.H), unsigned(a.B)); };
  launch(maps_kernel<kDk, Gates>,
         {grid((ceil_div(a.Dv, kMapColumns) + 1) * maps.count), kMapThreads, 2 * sizeof(MapChunk<kDk, Gates>)}, a,
         prepared, plan, maps);
  if (maps.count > 1) launch(carry_kernel<kDk, Gates>, {grid(a.Dv / kCarryColumns), unsigned(2 * a.Dk)}, a, maps);
  end_part("segments");
  return maps.states.data;
}

/// Starts the kernels; see segmented_walk().
/// @param prepared T and P; `factors` has the vectors of each chunk, [B, H, N, Gates::kFloats]
template <class Gates>
void start(const Bf16Arguments& a, const Prepared& prepared, LaunchPlan plan) {
  if (plan.segments > 1) {
    plan.starts = a.Dk <= 64 ? find_starts<64, Gates>(a, prepared, plan) : find_starts<128, Gates>(a, prepared, plan);
  }
  select_shape(a.Dk, [&]<class Shape>(Shape) {
    launch(walk_kernel<Shape, Gates, BatchHeads>,
           {grid_of<Shape>(extents_of(a), plan.segments), kThreads, sizeof(WalkMemory<Shape::kDk, Gates>)}, a, prepared,
           plan, BatchHeads());
  });
  end_part("walk");
}

/// Starts kernel 3 for packed sequences.
/// @param prepared as above, with chunks numbered as in common/tile/packed_chunks.cuh
template <class Gates>
void start_packed(const PackedSequences<Bf16Arguments>& p, const Prepared& prepared) {
  const Bf16Arguments& a = p.all;
  const PackedHeads heads = list_sequences(p);
  select_shape(a.Dk, [&]<class Shape>(Shape) {
    dim3 grid = grid_of<Shape>(extents_of(a), 1);
    grid.z *= unsigned(p.N);
    launch(walk_kernel<Shape, Gates, PackedHeads>, {grid, kThreads, sizeof(WalkMemory<Shape::kDk, Gates>)}, a, prepared,
           make_launch_plan(a.L, 64, 1), heads);
  });
  end_part("walk");
}

}  // namespace
}  // namespace tutorial::delta_rule::segmented
