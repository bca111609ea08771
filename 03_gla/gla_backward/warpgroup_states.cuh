#pragma once
/// @file
/// The walk for the states of all chunks on products of warpgroups. `warpgroup_states` has the idea; the stage after it
/// has another layout of the states in memory.

#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#include <type_traits>

#include "03_gla/gla_backward.hpp"
#include "03_gla/gla_backward/gradients_of_chunks.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/float_panels.cuh"
#include "common/tile/warpgroup_chunk.cuh"
#include "common/tile/warpgroup_sub_chunk.cuh"

namespace tutorial::gla {

using namespace tile;

inline constexpr int kGroupRows = 64;           ///< of S, of a warpgroup
using GroupState = WarpgroupState<kGroupRows>;  ///< a thread's part of these rows and 64 columns

/// Threads that have the state, and of the block: with a warp that loads.
template <int kDk>
inline constexpr int kStateThreads = kDk / kGroupRows* kWarpgroup;
template <int kDk>
inline constexpr int kBlock = kStateThreads<kDk> + 32;

/// What a walk reads: S is made of k~ and v, S' of q~ and do.
struct WalkMaps {
  TensorMap keys, values;
};
struct StateMaps {
  WalkMaps from_start, from_end;
  TensorMap decays;
  TensorMap S, dS;  ///< tiles of the part that a warp has
};

/// The tiles of one chunk.
template <int kDk>
struct StateTiles {
  using Decays = FloatPanels<kSubChunks, kDk>;  ///< a row of fp32 numbers per sub-chunk
  PanelTile<kDk> K;
  PanelTile<kWarpgroupColumns> V;
  Decays decays;

  static constexpr unsigned kTileBytes = 2 * (kDk + kWarpgroupColumns) * kChunk;
  static constexpr unsigned kLoadedBytes = kTileBytes + Decays::kLoadedBytes;  ///< what a barrier expects
  static constexpr int kBytes = int(kTileBytes) + Decays::kBytes;

  /// @param memory kBytes in shared memory, aligned to 1024
  __device__ __forceinline__ explicit StateTiles(unsigned char* memory)
      : K{reinterpret_cast<__nv_bfloat16*>(memory)},
        V{K.data + kChunk * kDk},
        decays{reinterpret_cast<const float*>(V.data + V.kPanelElements)} {}

  /// The rows of k~ that belong to a warpgroup's rows of S, as a factor whose k are positions.
  __device__ __forceinline__ SharedFactor<Major::kMn> keys(int first_row) const {
    return k_from_row_to_row(PanelTile<kGroupRows>{K.data + first_row / kGroupRows * K.kPanelElements});
  }

  /// The decays of sub-chunk r for the rows of S that the calling thread has.
  __device__ __forceinline__ void load_decays(StateDecays<kGroupRows>& two, int r, int first_row) const {
    const int first = decays.place(r, first_row + int(lane_index()) % 4 * 2);
#pragma unroll
    for (int d = 0; d < kGroupRows; d += 8) {
      two[d / 8] = *reinterpret_cast<const float2*>(decays.data + decays.advance(first, d));
    }
  }
};

/// Changes the signs: `one_anchor` stores -D.
__device__ __forceinline__ void negate(StateDecays<kGroupRows>& decays) {
#pragma unroll
  for (float2& two : decays) two.x = -two.x, two.y = -two.y;
}

/// How `materialized` lays a state out: tiles of 8 x 8 elements of S^T.
struct StateInTiles {
  static constexpr int kPipelineDepth = 4;  ///< chunks in shared memory
  static constexpr int kBytes = 0;          ///< of shared memory for each warpgroup

  /// Writes the warp's part of S in bf16: 16 columns.
  /// @param state the state in memory
  /// @param place of the part in a state, and where the part is in the states' tensor
  /// @param rows of S that exist, from the part's first one on
  static __device__ __forceinline__ void store(__nv_bfloat16* state, const TileOrigin& place, const GroupState& S,
                                               int Dk, int rows, const TensorMap&, const PanelTile<kGroupRows>&) {
    auto* to = reinterpret_cast<std::uint32_t*>(state + place.position * Dk + place.column * 8) + fresh_lane();
    auto* next = to + Dk / 8 * 32;
#pragma unroll
    for (int d = 0; d < kGroupRows / 8; ++d) {
      if (d * 8 < rows) {
        store_global(to + d * 32, pack(S[4 * d], S[4 * d + 1]));
        store_global(next + d * 32, pack(S[4 * d + 2], S[4 * d + 3]));
      }
    }
  }
};

/// S^T as a matrix [Dv, Dk], of which bulk copies load tiles. Bulk copies store it, too: from registers each row of a
/// store would be 16 bytes, half of what memory writes at a time.
struct StateInRows {
  static constexpr int kPipelineDepth = 3;                                ///< as in StateInTiles
  static constexpr int kBytes = int(PanelTile<kGroupRows>::kPanelBytes);  ///< as in StateInTiles

  /// Writes the warp's part of S in bf16, 16 columns, to shared memory, when what lay there has been read.
  /// @param tile of the warpgroup
  static __device__ __forceinline__ void put(const GroupState& S, const PanelTile<kGroupRows>& tile) {
    if (lane_index() == 0) wait_stores_read<0>();
    __syncwarp();
    put_rows(tile, S);
  }
  /// Starts the copy of what put() has written.
  /// @param place where these columns are in the states' tensor
  /// @param map of the states' tensor
  static __device__ __forceinline__ void send(const TileOrigin& place, const TensorMap& map,
                                              const PanelTile<kGroupRows>& tile) {
    fence_async_proxy();
    __syncwarp();
    if (lane_index() == 0) {
      store_tile(map, tile.data + warp_in_group() * 16 * 64, place);
      commit_stores();
    }
  }
  /// Both.
  static __device__ __forceinline__ void store(__nv_bfloat16*, const TileOrigin& place, const GroupState& S, int, int,
                                               const TensorMap& map, const PanelTile<kGroupRows>& tile) {
    put(S, tile);
    send(place, map, tile);
  }
};

/// S at all borders, and S' from the last, with kOneAnchor but for the first. Grid (2 x tiles of Dv, H, B): the second
/// half is for S'.
/// @tparam Layout StateInTiles or StateInRows
/// @tparam kOneAnchor a chunk may have one anchor, as `one_anchor` explains: one decay and one product then, instead of
/// four
template <int kDk, class Layout, bool kOneAnchor>
__global__ void __launch_bounds__(kBlock<kDk>, 2)
    warpgroup_states_kernel(Bf16BackwardArguments a, Between between, const __grid_constant__ StateMaps maps) {
  constexpr int kPipelineDepth = Layout::kPipelineDepth;
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth];
  using Tiles = StateTiles<kDk>;
  const int b = int(blockIdx.z), h = int(blockIdx.y), N = between.prepared.N, blocks = int(gridDim.x) / 2;
  const bool is_from_end = int(blockIdx.x) >= blocks;
  const int first_column = int(blockIdx.x) % blocks * kWarpgroupColumns;
  const int columns = min(kWarpgroupColumns, a.Dv - first_column);
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return Tiles(memory + stage * Tiles::kBytes); };
  const auto chunk_of = [&](int i) { return is_from_end ? N - 1 - i : i; };

  let_next_kernel_start();
  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(kStateThreads<kDk> / 32);
    fence_barrier_init();
  }
  __syncthreads();

  if (threadIdx.x >= kStateThreads<kDk>) {
    if (threadIdx.x > kStateThreads<kDk>) return;
    const WalkMaps& walk = is_from_end ? maps.from_end : maps.from_start;
    auto ring = Ring<kPipelineDepth>::producer();
    for (int i = 0; i < N; ++i) {
      const int n = chunk_of(i);
      Barrier& barrier = full[ring.stage()];
      const Tiles tiles = tiles_of(ring.stage());
      ring.wait(empty);
      fence_async_proxy();  // the decays have been read by ordinary loads
      barrier.arrive_expect(Tiles::kLoadedBytes);
      load_panels(tiles.decays, maps.decays, barrier, {.position = n * kSubChunks, .head = h, .batch = b});
      load_panels(tiles.K, walk.keys, barrier, {.position = n * kChunk, .head = h, .batch = b});
      // A single position has no row in the map of S's values.
      const int t = n * kChunk + (!is_from_end && a.L == 1 ? kChunk : 0);
      load_panels(tiles.V, walk.values, barrier, {.column = first_column, .position = t, .head = h, .batch = b});
      ring.advance();
    }
    return;
  }

  const std::int64_t head = std::int64_t(b) * a.H + h, size = std::int64_t(a.Dk) * a.Dv;
  const int first_row = int(threadIdx.x) / kWarpgroup * kGroupRows, rows = a.Dk - first_row;
  const int warp_column = warp_in_group() * 16;
  __nv_bfloat16* states = (is_from_end ? between.dS : between.S) + head * (N + 1) * size;
  const PanelTile<kGroupRows> stored{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * Tiles::kBytes +
                                                                      first_row / kGroupRows * Layout::kBytes)};
  const View<const float>& start = is_from_end ? a.dfinal_state : a.initial_state;
  GroupState S;
  load_group_state<kGroupRows>(S, start.data ? start.row(b, h, first_row) + first_column : nullptr, start.stride_l,
                               rows, columns);
  const auto scale = [&](float factor) {
#pragma unroll
    for (float& element : S) element *= factor;
  };
  if (is_from_end) scale(1 / a.scale);
  const auto place_of = [&](int border) {
    return TileOrigin{.column = first_row, .position = first_column + warp_column, .head = border, .batch = int(head)};
  };
  const TensorMap& map = is_from_end ? maps.dS : maps.S;
  const auto store = [&](int border) {
    if (warp_column < columns) Layout::store(states + border * size, place_of(border), S, a.Dk, rows, map, stored);
  };
  // In `one_anchor`, store() is in two: put() writes S to shared memory, and send() starts the copy when the products of
  // the next chunk have been started, or before them if that chunk has no anchor. In other stages both do nothing.
  const auto put = [&] {
    if constexpr (kOneAnchor) {
      if (warp_column < columns) Layout::put(S, stored);
    }
  };
  const auto send = [&](int border) {
    if constexpr (kOneAnchor) {
      if (warp_column < columns) Layout::send(place_of(border), map, stored);
    }
  };
  if (!kOneAnchor) store(is_from_end ? N : 0);
  if (!is_from_end) put();

  auto ring = Ring<kPipelineDepth>::consumer();
  for (int i = 0; i < N; ++i) {
    const Tiles tiles = tiles_of(ring.stage());
    const auto v = k_from_row_to_row(tiles.V), k = tiles.keys(first_row);
    StateDecays<kGroupRows> decays;
    ring.wait(full);
    if (kOneAnchor && *tiles.decays.data < 0) {
      tiles.load_decays(decays, 0, first_row);
      negate(decays);
      if (is_from_end) {
        decay_state<kGroupRows>(S, decays);
        put();
      }
      wgmma_fence(S);
#pragma unroll
      for (int r = 0; r < kSubChunks; ++r) {
        start_sub_chunk_update<kGroupRows>(S, v.along_k(r * kSubChunk), k.along_k(r * kSubChunk));
      }
      wgmma_commit();
      send(is_from_end ? N - i : i);
      wgmma_wait<0>(S);
      if (!is_from_end) decay_state<kGroupRows>(S, decays);
    } else {
      if (is_from_end) put();
      send(is_from_end ? N - i : i);
      tiles.load_decays(decays, is_from_end ? kSubChunks - 1 : 0, first_row);
#pragma unroll
      for (int step = 0; step < kSubChunks; ++step) {
        const int r = is_from_end ? kSubChunks - 1 - step : step;
        decay_state<kGroupRows>(S, decays);
        wgmma_fence(S);
        start_sub_chunk_update<kGroupRows>(S, v.along_k(r * kSubChunk), k.along_k(r * kSubChunk));
        wgmma_commit();
        if (step + 1 < kSubChunks) tiles.load_decays(decays, is_from_end ? r - 1 : r + 1, first_row);
        wgmma_wait<0>(S);
      }
    }
    __syncwarp();  // all lanes have read the decays
    if (lane_index() == 0) empty[ring.stage()].arrive();
    ring.advance();
    if (!kOneAnchor) store(is_from_end ? N - 1 - i : i + 1);
    if (!is_from_end) put();
  }
  if (!is_from_end) send(N);
  if (lane_index() == 0) wait_stores_read<0>();
  if (is_from_end && a.dinitial_state.data) {
    scale(a.scale);
    store_group_state<kGroupRows>(a.dinitial_state.row(b, h, first_row) + first_column, S, a.dinitial_state.stride_l,
                                  rows, columns);
  }
}

/// The sizes of v as S takes it: without the last position. S at the end is for dg_L alone, and that key's part of the
/// final state has passed no gate.
inline TensorSizes sizes_of_values(const Bf16BackwardArguments& a) {
  return {a.B, a.H, std::max(a.L - 1, 1), a.Dv};
}

inline StateMaps state_maps(const Bf16BackwardArguments& a, const Between& between) {
  const Prepared& x = between.prepared;
  const TensorSizes rows{a.B, a.H, std::int64_t(kChunk) * x.N, a.Dk},
      decays{a.B, a.H, std::int64_t(kSubChunks) * x.N, a.Dk}, states{std::int64_t(a.B) * a.H, x.N + 1, a.Dv, a.Dk};
  const auto prepared = [&](const __nv_bfloat16* data) {
    return tile_map(packed(data, rows.H, rows.L, rows.D), rows, kChunk);
  };
  return {{prepared(x.k), tile_map(a.v, sizes_of_values(a), kChunk)},
          {prepared(x.q), tile_map(a.d_o, tensor_sizes(a, a.Dv), kChunk)},
          float_tile_map(packed<const float>(x.decays, a.H, decays.L, a.Dk), decays, kSubChunks),
          tile_map(packed(between.S, states.H, states.L, states.D), states, 16),
          tile_map(packed(between.dS, states.H, states.L, states.D), states, 16)};
}

/// Starts the walks, in both directions at once.
/// @throws CudaError if the launch is refused
/// @tparam kOneAnchor as that of the kernel
template <class Layout, bool kOneAnchor = false>
void start_states_walks(const Bf16BackwardArguments& a, const Between& between) {
  const auto start = [&]<int kDk>(std::integral_constant<int, kDk>) {
    launch(warpgroup_states_kernel<kDk, Layout, kOneAnchor>,
           {dim3(unsigned(2 * ceil_div(a.Dv, kWarpgroupColumns)), unsigned(a.H), unsigned(a.B)), kBlock<kDk>,
            Layout::kPipelineDepth * std::size_t(StateTiles<kDk>::kBytes) + kDk / kGroupRows * Layout::kBytes},
           a, between, state_maps(a, between));
  };
  a.Dk <= 64 ? start(std::integral_constant<int, 64>()) : start(std::integral_constant<int, 128>());
}

/// Why they cannot run; empty if they can.
inline std::string states_walks_unsupported(const Bf16BackwardArguments& a) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) return reason;
  const std::string reason = why_not_mapped(a.v, sizes_of_values(a), kChunk);
  return reason.empty() ? why_not_mapped(a.d_o, tensor_sizes(a, a.Dv), kChunk) : reason;
}

}  // namespace tutorial::gla
