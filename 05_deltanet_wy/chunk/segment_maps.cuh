#pragma once
/// @file
/// What each segment does to a state, and the state that each segment starts from (`segments`):
///
///     start of m + 1  =  S + Psi_m S + H_m,      S = start of m,        start of 1 = H_0
///
/// With gates, S is first multiplied by the segment's decay (dispatch/segments.cu of gated_delta_rule and kda).
///
/// As in a walk, a warpgroup has 64 columns of S, transposed, in registers:
///
///     D^T = S^T Psi_m^T        A = S^T, rounded, from registers          B = Psi_m^T from shared memory
///
/// This is the product that updates the state after a chunk, S^T += v_new^T K, for a chunk of Dk positions whose keys
/// are the columns of Psi_m and whose values are the rows of S. S itself is not rounded: D and H_m are added to it in
/// fp32. While the tensor core computes D, the threads write S, add H_s, and load H of the next segment.
///
/// Source: FlashInfer's delta rule for Hopper, since version 0.7, which keeps Phi = I + Psi instead.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/delta_rule.hpp"
#include "common/ceil_div.hpp"
#include "common/device/bulk_copy.cuh"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/pack.cuh"
#include "common/device/tensor_map.hpp"
#include "common/device/walked_heads.cuh"
#include "common/device/warp.cuh"
#include "common/device/wgmma.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/panel_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {

inline constexpr int kMapThreads = 2 * tile::kWarpgroup + 32;  ///< of a block: two warpgroups, and a warp that loads

/// A chunk in shared memory, for two warpgroups that walk without outputs: K, 128 columns of V or K, and T.
template <int kDk>
struct MapTiles : tile::StateTiles<tile::PanelShape<kDk, 128>> {
  using Base = tile::StateTiles<tile::PanelShape<kDk, 128>>;  ///< K and the columns
  SquarePanel T_high, T_low;                                  ///< -T in two bf16

  static constexpr int kBytes = Base::kBytes + 2 * int(SquarePanel::kPanelBytes);
  static constexpr int kDepth = 4;  ///< chunks of a block

  /// @param memory kBytes in shared memory, aligned to 1024 bytes
  __device__ __forceinline__ explicit MapTiles(unsigned char* memory)
      : Base(memory),
        T_high{reinterpret_cast<__nv_bfloat16*>(memory + Base::kBytes)},
        T_low{T_high.data + SquarePanel::kPanelElements} {}

  /// The columns of warpgroup 0 or 1.
  __device__ __forceinline__ ValuePanel columns(int group) const {
    return {this->V.data + group * this->V.kPanelElements};
  }
};

/// 64 columns of a state or of a transition.
struct Columns {
  int b, h, segment;
  int tile;  ///< their number divided by 64
};

/// What all segments but the last do to a state: H_m and Psi_m, in device memory.
/// @tparam kDk rows of a state in a warpgroup's registers: 64 or 128
template <int kDk>
struct SegmentMaps {
  int count;  ///< segments of a head but the last
  int tiles;  ///< of 64 columns of Dv
  /// [B, H, count, tiles, kDk / 8, 128]: H, later the start of the following segment, in the order in which the threads
  /// of a warpgroup hold S^T. Four sums of a thread are side by side.
  float4* states;
  /// [B, H, count, kDk, kDk]: Psi^T, rounded, with zeros in rows and columns that do not exist. That of the first
  /// segment is not used.
  __nv_bfloat16* transitions;
  WalkedHeads heads{};  ///< for which they are not wanted

  /// Bytes of a state and of a transition.
  static constexpr std::int64_t kStateBytes = kDk * tile::kWarpgroupColumns * 4, kTransitionBytes = kDk * kDk * 2;

  /// Allocates the memory for both.
  /// @throws CudaError if it cannot be allocated
  SegmentMaps(const Bf16Arguments& a, int count) : count(count), tiles(ceil_div(a.Dv, tile::kWarpgroupColumns)) {
    const std::int64_t segments = std::int64_t(a.B) * a.H * count;
    states = workspace<float4>("delta_rule: segments", std::size_t(segments * tiles * kStateBytes) / sizeof(float4));
    transitions = workspace<__nv_bfloat16>("delta_rule: transitions",
                                           std::size_t(segments * kTransitionBytes) / sizeof(__nv_bfloat16));
  }

  /// The tensor map of the transitions, for bulk copies.
  TensorMap transition_map(const Bf16Arguments& a) const {
    const std::int64_t rows = std::int64_t(count) * kDk;
    return tile_map(packed(transitions, a.H, rows, kDk), {a.B, a.H, rows, kDk}, kDk);
  }

  /// Where the thread's part of a state begins; its groups of four elements are tile::kWarpgroup apart.
  __device__ __forceinline__ float4* state(const Bf16Arguments& a, const Columns& of) const {
    return states + (number(a, of) * tiles + of.tile) * (kDk / 8) * tile::kWarpgroup +
           int(threadIdx.x) % tile::kWarpgroup;
  }
  /// The distance from the state of a segment to that of the next one.
  __device__ __forceinline__ int stride() const { return tiles * (kDk / 8) * tile::kWarpgroup; }

  /// S = load(an address of the thread's part), for all of it.
  template <class Load>
  static __device__ __forceinline__ void load(tile::WarpgroupState<kDk>& S, const float4* state, Load load) {
#pragma unroll
    for (int i = 0; i < kDk / 2; i += 4) {
      const float4 four = load(state + i / 4 * tile::kWarpgroup);
      S[i] = four.x, S[i + 1] = four.y, S[i + 2] = four.z, S[i + 3] = four.w;
    }
  }
  /// Writes the thread's part of a state.
  static __device__ __forceinline__ void store(float4* state, const tile::WarpgroupState<kDk>& S) {
#pragma unroll
    for (int i = 0; i < kDk / 2; i += 4) {
      store_global(state + i / 4 * tile::kWarpgroup, make_float4(S[i], S[i + 1], S[i + 2], S[i + 3]));
    }
  }

  /// S = the operator's initial state, which may be absent.
  __device__ __forceinline__ void load_initial(tile::WarpgroupState<kDk>& S, const Bf16Arguments& a,
                                               const Columns& of) const {
    const int column = of.tile * tile::kWarpgroupColumns;
    tile::load_group_state<kDk>(S, a.initial_state.data ? a.initial_state.row(of.b, of.h, 0) + column : nullptr,
                                a.initial_state.stride_l, a.Dk, a.Dv - column);
  }
  /// S = what a segment, 1 or later, starts from.
  __device__ __forceinline__ void load_start(tile::WarpgroupState<kDk>& S, const Bf16Arguments& a,
                                             const Columns& of) const {
    load(S, state(a, of) - stride(), [](const float4* four) { return load_for_update(four); });
  }
  /// Writes H, if these columns exist.
  __device__ __forceinline__ void store_state(const Bf16Arguments& a, const Columns& of,
                                              const tile::WarpgroupState<kDk>& H) const {
    if (of.tile < tiles) store(state(a, of), H);
  }
  /// Writes Psi, rounded, if these columns exist.
  __device__ __forceinline__ void store_transition(const Bf16Arguments& a, const Columns& of,
                                                   const tile::WarpgroupState<kDk>& Psi) const {
    if (of.tile >= kDk / tile::kWarpgroupColumns) return;
    __nv_bfloat16* row = transitions + (number(a, of) * kDk + of.tile * tile::kWarpgroupColumns) * kDk;
#pragma unroll
    for (int i = 0; i < kDk / 2; i += 2) {
      auto* two = reinterpret_cast<std::uint32_t*>(row + wgmma_row(i) * kDk + wgmma_column(i));
      store_global(two, pack(Psi[i], Psi[i + 1]));
    }
  }

  /// The blocks that compute them for a segment: one per 128 columns of [V | -K], the last one for -K.
  TUTORIAL_HOST_DEVICE int blocks() const {
    return (tiles + 1) / 2 + 1;
  }
  /// Their launch.
  template <class Shape>
  LaunchConfig config(const Bf16Arguments& a) const {
    const tile::Extents with_keys{a.B, a.H, a.L, a.Dk, blocks() * Shape::kDv};
    return {tile::grid_of<Shape>(with_keys, count), kMapThreads, MapTiles<kDk>::kDepth * MapTiles<kDk>::kBytes};
  }

 private:
  /// The number of a segment among the segments of all heads, without the last one of each head.
  __device__ __forceinline__ std::int64_t number(const Bf16Arguments& a, const Columns& of) const {
    return (std::int64_t(of.b) * a.H + of.h) * count + of.segment;
  }
};

/// What is left of a state after a segment, beside Psi S + H: all of it. And each segment needs its past.
struct WithoutGates {
  static constexpr __device__ bool begin(int) { return true; }  ///< a head; returns whether any segment needs its past
  __device__ __forceinline__ void load(int) {}                  ///< of a segment
  static constexpr __device__ bool needs_past(int) { return true; }  ///< a segment
  template <int kSums>
  __device__ __forceinline__ void add(float (&S)[kSums], const float (&H)[kSums]) const {  ///< S = what is left + H
#pragma unroll
    for (int i = 0; i < kSums; ++i) S[i] += H[i];
  }
};

namespace {

inline constexpr int kCarryThreads = tile::kWarpgroup + 32;  ///< of a block: a warpgroup, and a warp that loads
inline constexpr int kTransitions = 2;                       ///< in shared memory

/// Maps of one sequence.
struct AllSegments {
  static constexpr __device__ int first() { return 0; }
  static constexpr __device__ int end(int count) { return count; }  ///< @param count of the maps
};

/// Of 64 columns of a head: turns what each segment makes of zeros into the state that the next segment starts from.
/// All threads of a block of kCarryThreads call it.
/// @tparam kIsAdjoint whether states go from the last segment to the first, multiplied by the transposes of Psi. Segments
/// are then counted from the last one
/// @param transitions SegmentMaps::transition_map()
/// @param of the segments of a sequence among those of the maps: AllSegments, or one with its members
template <class Shape, bool kIsAdjoint, class Kept, class Segments = AllSegments>
__device__ __forceinline__ void carry_columns(const Bf16Arguments& a, const TensorMap& transitions,
                                              const SegmentMaps<Shape::kDk>& maps, Kept& kept, int tile,
                                              const Segments& of = {}) {
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
  if (has_been_walked(maps.heads, b * a.H + h) || !kept.begin(b * a.H + h)) return;

  if (threadIdx.x >= tile::kWarpgroup) {
    if (threadIdx.x > tile::kWarpgroup) return;
    auto ring = Ring<kTransitions>::producer();
    for (int segment = of.first() + 1; segment < of.end(maps.count); ++segment) {
      if (!kept.needs_past(segment)) continue;
      ring.wait(empty);
      full[ring.stage()].arrive_expect(unsigned(maps.kTransitionBytes));
      tile::load_panels(transition(ring.stage()), transitions, full[ring.stage()],
                        {.position = (kIsAdjoint ? maps.count - segment : segment) * kDk, .head = h, .batch = b});
      ring.advance();
    }
    return;
  }
  float4* state = maps.state(a, {b, h, of.first(), tile});
  tile::WarpgroupState<Shape::kDk> S, H, D;
  tile::RoundedState<Shape::kDk> s;
  const auto load = [&](tile::WarpgroupState<kDk>& from, const float4* state) {
    maps.load(from, state, [](const float4* four) { return load_for_update(four); });
  };
  const auto load_segment = [&](int segment, const float4* state) {
    if (segment >= of.end(maps.count) || !kept.needs_past(segment + 1)) return;
    load(H, state);
    kept.load(segment);
  };
  if (kept.needs_past(of.first() + 1)) load(S, state);
  load_segment(of.first() + 1, state + maps.stride());
  auto ring = Ring<kTransitions>::consumer();
  for (int segment = of.first() + 1; segment < of.end(maps.count); ++segment) {
    if (!kept.needs_past(segment)) {  // H is all that it leaves
      state += maps.stride();
#pragma unroll
      for (int i = 0; i < kDk / 2; ++i) S[i] = H[i];
      load_segment(segment + 1, state + maps.stride());
      continue;
    }
    tile::round_state<kDk>(s, S);
    ring.wait(full);
    const Transition Psi = transition(ring.stage());
    const auto factor = [&] {
      if constexpr (kIsAdjoint) {
        return tile::k_along_rows(Psi);
      } else {
        return tile::k_from_row_to_row(Psi);
      }
    }();
    wgmma_fence(D, s);
#pragma unroll
    for (int e = 0; e < kDk; e += 16) wgmma<kDk>(D, s[e / 16], factor.along_k(e), e > 0);
    wgmma_commit();
    maps.store(state, S);
    state += maps.stride();
    kept.add(S, H);
    load_segment(segment + 1, state + maps.stride());
    wgmma_wait<0>(D);
    if (lane_index() == 0) empty[ring.stage()].arrive();
    ring.advance();
#pragma unroll
    for (int i = 0; i < kDk / 2; ++i) S[i] += D[i];
  }
  maps.store(state, S);
}

/// Grid (tiles of 64 columns of Dv, H, B).
template <class Shape, class Kept>
__global__ void __launch_bounds__(kCarryThreads, 1)
    carry_segments_kernel(Bf16Arguments a, const __grid_constant__ TensorMap transitions, SegmentMaps<Shape::kDk> maps,
                          Kept kept) {
  let_next_kernel_start();
  carry_columns<Shape, false>(a, transitions, maps, kept, int(blockIdx.x));
}

/// Turns what each segment makes of zeros into the state that the next segment starts from.
/// @param starts_early if the kernel before lets it; the next kernel may in any case (common/device/early_start.cuh)
/// @throws CudaError if the launch is refused
template <class Shape, class Kept = WithoutGates>
void carry_segments(const Bf16Arguments& a, const SegmentMaps<Shape::kDk>& maps, bool starts_early = false,
                    const Kept& kept = {}) {
  LaunchConfig config(tile::grid_of<Shape>(tile::extents_of(a), 1), kCarryThreads,
                      kTransitions * std::size_t(maps.kTransitionBytes));
  config.starts_early = starts_early;
  launch(carry_segments_kernel<Shape, Kept>, config, a, maps.transition_map(a), maps, kept);
}

}  // namespace
}  // namespace tutorial::delta_rule
