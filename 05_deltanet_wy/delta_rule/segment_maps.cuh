#pragma once
/// @file
/// What segments make of a state, and the state that each of them starts from (13_segments.cu):
///
///     start of s + 1  =  S + Nn_s S + H_s,        S = start of s,        start of 1 = H_0
///
/// As in a walk, a warpgroup has 64 columns of S, transposed, in registers:
///
///     D^T = S^T Nn_s^T          A = S^T, rounded, from registers          B = Nn_s^T from shared memory
///
/// This is the product that brings the state up to date after a chunk, S^T += v_new^T K, with Dk positions: the keys of
/// this chunk are the columns of Nn_s, its values are the rows of S. S itself is not rounded: D and H_s are added to it in
/// fp32. While D is computed, the threads write S and add H_s.
///
/// Source: FlashInfer's delta rule for Hopper, since version 0.7, which has M = I + Nn instead.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule/warpgroup_products.cuh"
#include "common/ceil_div.hpp"
#include "common/device/bulk_copy.cuh"
#include "common/device/launch.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/pack.cuh"
#include "common/device/tensor_map.hpp"
#include "common/device/warp.cuh"
#include "common/device/wgmma.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/panel_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {

/// A chunk in shared memory, for a walk without outputs.
template <class Shape>
struct MapTiles : tile::StateTiles<Shape> {
  SquarePanel T_high, T_low;

  static constexpr int kBytes = tile::StateTiles<Shape>::kBytes + 2 * int(SquarePanel::kPanelBytes);
  static constexpr int kDepth = 2;  ///< chunks of a block

  /// @param memory kBytes in shared memory, aligned to 1024 bytes
  __device__ __forceinline__ explicit MapTiles(unsigned char* memory)
      : tile::StateTiles<Shape>(memory),
        T_high{reinterpret_cast<__nv_bfloat16*>(memory + tile::StateTiles<Shape>::kBytes)},
        T_low{T_high.data + SquarePanel::kPanelElements} {}
};

/// What all segments but the last make of a state: H_s and Nn_s, in device memory.
/// @tparam kDk rows of a state in a warpgroup's registers: 64 or 128
template <int kDk>
struct SegmentMaps {
  int count;  ///< segments of a head but the last
  int tiles;  ///< of 64 columns of Dv
  /// [B, H, count, tiles, kDk / 8, 128]: H, later the start of the segment behind it, in the order in which the threads
  /// of a warpgroup hold S^T: four sums of each thread side by side.
  float4* states;
  /// [B, H, count, kDk, kDk]: Nn^T, rounded, zeros where a row or column does not exist. That of the first segment is not
  /// used.
  __nv_bfloat16* transitions;

  /// Bytes of a state and of a transition.
  static constexpr std::int64_t kStateBytes = kDk * tile::kWarpgroupColumns * 4, kTransitionBytes = kDk * kDk * 2;

  /// Memory for them.
  /// @throws CudaError if it is not there
  SegmentMaps(const Bf16Arguments& a, int count) : count(count), tiles(ceil_div(a.Dv, tile::kWarpgroupColumns)) {
    const std::int64_t segments = std::int64_t(a.B) * a.H * count;
    states = workspace<float4>("delta_rule: segments", std::size_t(segments * tiles * kStateBytes) / sizeof(float4));
    transitions = workspace<__nv_bfloat16>("delta_rule: transitions",
                                           std::size_t(segments * kTransitionBytes) / sizeof(__nv_bfloat16));
  }

  /// The transitions, as bulk copies want them.
  TensorMap transition_map(const Bf16Arguments& a) const {
    const std::int64_t rows = std::int64_t(count) * kDk;
    return tile_map(packed(transitions, a.H, rows, kDk), {a.B, a.H, rows, kDk}, kDk);
  }

  /// Where the thread's part of a state begins; one part of four elements is tile::kWarpgroup behind the other.
  /// @param head b H + h
  __device__ __forceinline__ float4* state(std::int64_t head, int segment, int tile) const {
    return states + ((head * count + segment) * tiles + tile) * (kDk / 8) * tile::kWarpgroup +
           int(threadIdx.x) % tile::kWarpgroup;
  }
  /// Writes the thread's part of a state.
  static __device__ __forceinline__ void store(float4* state, const tile::WarpgroupState<kDk>& S) {
#pragma unroll
    for (int i = 0; i < kDk / 2; i += 4) {
      store_global(state + i / 4 * tile::kWarpgroup, make_float4(S[i], S[i + 1], S[i + 2], S[i + 3]));
    }
  }
  /// S += load(an address of the thread's part).
  template <class Load>
  static __device__ __forceinline__ void add(tile::WarpgroupState<kDk>& S, const float4* state, Load load) {
#pragma unroll
    for (int i = 0; i < kDk / 2; i += 4) {
      const float4 four = load(state + i / 4 * tile::kWarpgroup);
      S[i] += four.x, S[i + 1] += four.y, S[i + 2] += four.z, S[i + 3] += four.w;
    }
  }
  /// S = the state that a block of a walk starts from: the operator's initial state, or that of a segment.
  template <class Part>
  __device__ __forceinline__ void load_start(tile::WarpgroupState<kDk>& S, const Bf16Arguments& a,
                                             const Part& part) const {
    const bool is_given = part.segment == 0 && a.initial_state.data;
    tile::load_group_state<kDk>(S, is_given ? a.initial_state.row(part.b, part.h, 0) + part.first_column : nullptr,
                                a.initial_state.stride_l, a.Dk, part.columns);
    if (part.segment == 0) return;
    add(S, state(part.head, part.segment - 1, part.first_column / tile::kWarpgroupColumns),
        [](const float4* four) { return load_global(four); });
  }
  /// Writes 64 columns of Nn, rounded, which a warpgroup holds transposed.
  __device__ __forceinline__ void store_transition(std::int64_t head, int segment, int first_column,
                                                   const tile::WarpgroupState<kDk>& Nn) const {
    __nv_bfloat16* row = transitions + ((head * count + segment) * kDk + first_column) * kDk;
#pragma unroll
    for (int i = 0; i < kDk / 2; i += 2) {
      auto* two = reinterpret_cast<std::uint32_t*>(row + wgmma_row(i) * kDk + wgmma_column(i));
      store_global(two, pack(Nn[i], Nn[i + 1]));
    }
  }
};

namespace {

inline constexpr int kSegmentThreads = tile::kWarpgroup + 32;  ///< of a block: a warpgroup, and a warp that loads
inline constexpr int kTransitions = 2;                         ///< in shared memory

/// Grid (tiles of 64 columns of Dv, H, B).
/// @param transitions SegmentMaps::transition_map()
template <class Shape>
__global__ void __launch_bounds__(kSegmentThreads, 1)
    carry_segments_kernel(Bf16Arguments a, const __grid_constant__ TensorMap transitions,
                          SegmentMaps<Shape::kDk> maps) {
  constexpr int kDk = Shape::kDk;
  using Transition = tile::PanelTile<kDk, kDk>;
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  __shared__ Barrier full[kTransitions], empty[kTransitions];
  auto* memory = dynamic_shared<__nv_bfloat16, kTileAlignment>();
  const auto transition = [&](int stage) { return Transition{memory + stage * kDk * kDk}; };
  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4);
    fence_barrier_init();
  }
  __syncthreads();

  if (threadIdx.x >= tile::kWarpgroup) {
    if (threadIdx.x > tile::kWarpgroup) return;
    auto ring = Ring<kTransitions>::producer();
    for (int segment = 1; segment < maps.count; ++segment) {
      ring.wait(empty);
      full[ring.stage()].arrive_expect(unsigned(maps.kTransitionBytes));
      tile::load_panels(transition(ring.stage()), transitions, full[ring.stage()],
                        {.position = segment * kDk, .head = h, .batch = b});
      ring.advance();
    }
    return;
  }
  const std::int64_t head = std::int64_t(b) * a.H + h, stride = maps.state(0, 1, 0) - maps.state(0, 0, 0);
  float4* state = maps.state(head, 0, int(blockIdx.x));
  tile::WarpgroupState<kDk> S = {}, D;
  tile::RoundedState<kDk> s;
  const auto add_own = [&] { maps.add(S, state, [](const float4* four) { return load_for_update(four); }); };
  add_own();
  auto ring = Ring<kTransitions>::consumer();
  for (int segment = 1; segment < maps.count; ++segment) {
    tile::round_state<kDk>(s, S);
    ring.wait(full);
    const auto factor = tile::k_from_row_to_row(transition(ring.stage()));
    wgmma_fence(D, s);
#pragma unroll
    for (int e = 0; e < kDk; e += 16) wgmma<kDk>(D, s[e / 16], factor.along_k(e), e > 0);
    wgmma_commit();
    maps.store(state, S);
    state += stride;
    add_own();
    wgmma_wait<0>(D);
    if (lane_index() == 0) empty[ring.stage()].arrive();
    ring.advance();
#pragma unroll
    for (int i = 0; i < kDk / 2; ++i) S[i] += D[i];
  }
  maps.store(state, S);
}

/// From what each segment makes of zeros to the state that the next one starts from.
/// @throws CudaError if the launch is refused
template <class Shape>
void carry_segments(const Bf16Arguments& a, const SegmentMaps<Shape::kDk>& maps) {
  launch(carry_segments_kernel<Shape>,
         {tile::grid_of<Shape>(tile::extents_of(a), 1), kSegmentThreads,
          kTransitions * std::size_t(maps.kTransitionBytes)},
         a, maps.transition_map(a), maps);
}

}  // namespace
}  // namespace tutorial::delta_rule
