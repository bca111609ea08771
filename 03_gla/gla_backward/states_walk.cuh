#pragma once
/// @file
/// What the walks for the states of all chunks are made of, on products of warpgroups: the operator's `warpgroup_walk`
/// without outputs. No element of S needs another one, so two warpgroups share S: while one waits for its product, the
/// other one multiplies its rows by decays. A block (direction and tile, h, b) has 64 columns of Dv, for S or, from the
/// last chunk on, for S'. Each of its warpgroups has 64 rows of S, and one thread of a last warp loads.

#include <cuda_runtime.h>

#include "03_gla/gla_backward.hpp"
#include "03_gla/gla_backward/gradient_maps.cuh"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/tile/warpgroup_sub_chunk.cuh"

namespace tutorial::gla {

inline constexpr int kGroupRows = 64;           ///< of S, of a warpgroup
using GroupState = WarpgroupState<kGroupRows>;  ///< a thread's part of these rows and 64 columns
inline constexpr int kPipelineDepth = 3;        ///< chunks in shared memory

/// Threads that have the state, and of the block: with a warp that loads.
template <int kDk>
inline constexpr int kStateThreads = kDk / kGroupRows* kWarpgroup;
template <int kDk>
inline constexpr int kBlock = kStateThreads<kDk> + 32;

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

  /// The decays of sub-chunk r for the rows of S that the calling thread has, times a sign.
  __device__ __forceinline__ void load_decays(StateDecays<kGroupRows>& two, int r, int first_row,
                                              float sign = 1) const {
    const int first = decays.place(r, first_row + int(lane_index()) % 4 * 2);
#pragma unroll
    for (int d = 0; d < kGroupRows; d += 8) {
      const float2 x = *reinterpret_cast<const float2*>(decays.data + decays.advance(first, d));
      two[d / 8] = {sign * x.x, sign * x.y};
    }
  }
};

/// A block's walk: of which head, in which direction, for which columns.
struct StatesWalk {
  int b, h, N;                ///< N: chunks
  bool is_from_end;           ///< S' from the last chunk on, else S from the first one
  int first_column, columns;  ///< of Dv

  /// @param N chunks of a sequence
  __device__ __forceinline__ StatesWalk(const Bf16BackwardArguments& a, int N)
      : b(int(blockIdx.z)),
        h(int(blockIdx.y)),
        N(N),
        is_from_end(int(blockIdx.x) >= int(gridDim.x) / 2),
        first_column(int(blockIdx.x) % (int(gridDim.x) / 2) * kWarpgroupColumns),
        columns(min(kWarpgroupColumns, a.Dv - first_column)) {}

  /// Makes the barriers; called by all threads.
  template <int kDk>
  __device__ __forceinline__ void init(Barrier (&full)[kPipelineDepth], Barrier (&empty)[kPipelineDepth]) const {
    if (threadIdx.x == 0) {
      for (Barrier& barrier : full) barrier.init(1);
      for (Barrier& barrier : empty) barrier.init(kStateThreads<kDk> / 32);
      fence_barrier_init();
    }
    __syncthreads();
  }

  /// Loads the tiles of all chunks, one after the other. Called by the last warp.
  template <int kDk>
  __device__ __forceinline__ void load(const Bf16BackwardArguments& a, const StateMaps& maps, unsigned char* memory,
                                       Barrier (&full)[kPipelineDepth], Barrier (&empty)[kPipelineDepth]) const {
    using Tiles = StateTiles<kDk>;
    if (threadIdx.x > kStateThreads<kDk>) return;
    const WalkMaps& from = is_from_end ? maps.from_end : maps.from_start;
    auto ring = Ring<kPipelineDepth>::producer();
    for (int i = 0; i < N; ++i) {
      const int n = is_from_end ? N - 1 - i : i;
      Barrier& barrier = full[ring.stage()];
      const Tiles tiles(memory + ring.stage() * Tiles::kBytes);
      ring.wait(empty);
      fence_async_proxy();  // the decays have been read by ordinary loads
      barrier.arrive_expect(Tiles::kLoadedBytes);
      load_panels(tiles.decays, maps.decays, barrier, {.position = n * kSubChunks, .head = h, .batch = b});
      load_panels(tiles.K, from.keys, barrier, {.position = n * kChunk, .head = h, .batch = b});
      // A single position has no row in the map of S's values.
      const int t = n * kChunk + (!is_from_end && a.L == 1 ? kChunk : 0);
      load_panels(tiles.V, from.values, barrier, {.column = first_column, .position = t, .head = h, .batch = b});
      ring.advance();
    }
  }
};

/// The part of the states that a warp has: 16 columns of the rows of its warpgroup. It goes to memory as S^T [Dv, Dk],
/// of which bulk copies load tiles. Bulk copies store it, too: from registers each row of a store would be 16 bytes,
/// half of what memory writes at a time.
struct StatePart {
  int first_row, rows, warp_column;
  int head;                      ///< of all batch entries
  bool has_columns;              ///< the warp's columns exist
  PanelTile<kGroupRows> stored;  ///< of the warpgroup

  static constexpr int kBytes = int(PanelTile<kGroupRows>::kPanelBytes);  ///< of shared memory for each warpgroup

  /// @param memory kBytes for each warpgroup
  __device__ __forceinline__ StatePart(const Bf16BackwardArguments& a, const StatesWalk& walk, unsigned char* memory)
      : first_row(int(threadIdx.x) / kWarpgroup * kGroupRows),
        rows(a.Dk - first_row),
        warp_column(warp_in_group() * 16),
        head(walk.b * a.H + walk.h),
        has_columns(warp_column < walk.columns),
        stored{reinterpret_cast<__nv_bfloat16*>(memory + first_row / kGroupRows * kBytes)} {
    warp_column += walk.first_column;
  }

  /// The state that the walk starts from; S' = dS / scale.
  __device__ __forceinline__ void load_start(GroupState& S, const Bf16BackwardArguments& a,
                                             const StatesWalk& walk) const {
    const View<const float>& start = walk.is_from_end ? a.dfinal_state : a.initial_state;
    load_group_state<kGroupRows>(S, start.data ? start.row(walk.b, walk.h, first_row) + walk.first_column : nullptr,
                                 start.stride_l, rows, walk.columns);
    if (walk.is_from_end) scale(S, 1 / a.scale);
  }
  /// Stores dinitial_state, at the end of a walk from the end.
  __device__ __forceinline__ void store_end(GroupState& S, const Bf16BackwardArguments& a,
                                            const StatesWalk& walk) const {
    if (lane_index() == 0) wait_stores_read<0>();
    if (!walk.is_from_end || !a.dinitial_state.data) return;
    scale(S, a.scale);
    store_group_state<kGroupRows>(a.dinitial_state.row(walk.b, walk.h, first_row) + walk.first_column, S,
                                  a.dinitial_state.stride_l, rows, walk.columns);
  }

  /// Writes S in bf16 to shared memory, when what lay there has been read.
  __device__ __forceinline__ void put(const GroupState& S) const {
    if (!has_columns) return;
    if (lane_index() == 0) wait_stores_read<0>();
    __syncwarp();
    put_rows(stored, S);
  }
  /// Starts the copy of what put() has written.
  /// @param border number of the state
  /// @param map of the states' tensor
  __device__ __forceinline__ void send(int border, const TensorMap& map) const {
    if (!has_columns) return;
    fence_async_proxy();
    __syncwarp();
    if (lane_index() == 0) {
      store_tile(map, stored.data + warp_in_group() * 16 * 64,
                 {.column = first_row, .position = warp_column, .head = border, .batch = head});
      commit_stores();
    }
  }

 private:
  static __device__ __forceinline__ void scale(GroupState& S, float factor) {
#pragma unroll
    for (float& element : S) element *= factor;
  }
};

/// S = diag(D_r) S + k~_r^T v_r for the sub-chunks of a chunk, one after the other, in the walk's direction.
template <int kDk>
__device__ __forceinline__ void walk_sub_chunks(GroupState& S, const StateTiles<kDk>& tiles, int first_row,
                                                bool is_from_end) {
  const auto v = k_from_row_to_row(tiles.V), k = tiles.keys(first_row);
  StateDecays<kGroupRows> decays;
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

/// The launch of a walk's kernel: in both directions at once.
template <int kDk>
LaunchConfig walk_config(const Bf16BackwardArguments& a) {
  return {dim3(unsigned(2 * ceil_div(a.Dv, kWarpgroupColumns)), unsigned(a.H), unsigned(a.B)), kBlock<kDk>,
          kPipelineDepth * std::size_t(StateTiles<kDk>::kBytes) + kDk / kGroupRows * StatePart::kBytes};
}

}  // namespace tutorial::gla
