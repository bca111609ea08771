#include <cuda_runtime.h>

#include "04_fused_chunk/fused_gla.hpp"
#include "04_fused_chunk/gla/one_kernel.hpp"
#include "common/device/launch.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/float_panels.cuh"
#include "common/tile/prepare_sub_chunk.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_sub_chunk.cuh"

namespace tutorial::fused_gla {
namespace {

using namespace tile;

constexpr int kSlots = 8;                       // prepared sub-chunks in shared memory
constexpr int kPipelineDepth = 2;               // V of chunks in shared memory
constexpr int kDepth = 2;                       // O in shared memory
constexpr int kBlock = 4 * kWarpgroup;          // threads
constexpr int kStoreThreads = kWarpgroup - 32;  // of them

/// Three warpgroups prepare or walk: one walks for each 64 columns of Dv.
template <class Shape>
constexpr int kWalkers = Shape::kDv / kWarpgroupColumns;
template <class Shape>
constexpr int kPreparers = 4 * (3 - kWalkers<Shape>);  // warps, one sub-chunk each
template <class Shape>
constexpr int kRawDepth = kSlots / kPreparers<Shape>;  // slices of 64 columns of q, k and g, of each such warp

struct Maps {
  TensorMap q, k, v, g;
};

/// What a warp leaves of a sub-chunk.
template <class Shape>
struct PreparedTiles {
  PanelTile<Shape::kDk, kSubChunk> Q, K;
  float* decays;                     ///< [kDk]
  const PanelTile<64, kSubChunk> P;  ///< shared by four sub-chunks
  int first_column;                  ///< of this one in P
};

/// Shared memory.
template <class Shape>
struct Memory {
  static constexpr int kRowsBytes = 2 * kSubChunk * Shape::kDk;  // of q~ or k~
  static constexpr int kScores = 2 * kSlots * kRowsBytes;        // where what begins
  static constexpr int kRaw = kScores + kSlots / kSubChunks * int(PanelTile<64, kSubChunk>::kPanelBytes);
  static constexpr int kValues = kRaw + kSlots * int(RawTiles::kBytes);
  static constexpr int kOutputs = kValues + kPipelineDepth * kWalkers<Shape> * int(PanelTile<64>::kPanelBytes);
  static constexpr int kAnchored = kOutputs + kDepth * kWalkers<Shape> * int(PanelTile<64>::kPanelBytes);
  static constexpr int kDecays = kAnchored + kPreparers<Shape> * AnchoredTiles::kBytes;
  static constexpr int kBytes = kDecays + kSlots * Shape::kDk * int(sizeof(float));

  unsigned char* memory;

  template <class Tile>
  __device__ __forceinline__ Tile tile_at(int byte) const {
    return Tile{reinterpret_cast<__nv_bfloat16*>(memory + byte)};
  }
  __device__ __forceinline__ PreparedTiles<Shape> prepared(int slot) const {
    return {tile_at<PanelTile<Shape::kDk, kSubChunk>>(2 * slot * kRowsBytes),
            tile_at<PanelTile<Shape::kDk, kSubChunk>>((2 * slot + 1) * kRowsBytes),
            reinterpret_cast<float*>(memory + kDecays) + slot * Shape::kDk,
            tile_at<PanelTile<64, kSubChunk>>(kScores + slot / kSubChunks * int(PanelTile<64, kSubChunk>::kPanelBytes)),
            slot % kSubChunks * kSubChunk};
  }
  __device__ __forceinline__ RawTiles raw(int number) const {
    return RawTiles(memory + kRaw + number * int(RawTiles::kBytes));
  }
  __device__ __forceinline__ AnchoredTiles anchored(int warp) const {
    return AnchoredTiles(memory + kAnchored + warp * AnchoredTiles::kBytes);
  }
  __device__ __forceinline__ PanelTile<Shape::kDv> values(int stage) const {
    return tile_at<PanelTile<Shape::kDv>>(kValues + stage * kWalkers<Shape> * int(PanelTile<64>::kPanelBytes));
  }
  __device__ __forceinline__ PanelTile<64> output(int walker, int stage) const {
    return tile_at<PanelTile<64>>(kOutputs + (walker * kDepth + stage) * int(PanelTile<64>::kPanelBytes));
  }
};

/// Where a lane puts what prepare_columns() makes of rows.
template <class Shape>
struct ToTiles {
  const PreparedTiles<Shape>& tiles;
  int column;

  __device__ __forceinline__ void put(const PanelTile<Shape::kDk, kSubChunk>& tile, int row, float2 x) const {
    store_for_copies(reinterpret_cast<std::uint32_t*>(tile.data + tile.unit(row, column / 8 * 8) + column % 8),
                     pack(x.x, x.y));
  }
  __device__ __forceinline__ void query(int t, float2 x) const { put(tiles.Q, t, x); }
  __device__ __forceinline__ void key(int i, float2 x) const { put(tiles.K, i, x); }
  __device__ __forceinline__ void decay(float2 x) const { *reinterpret_cast<float2*>(tiles.decays + column) = x; }
};

/// The decays of a sub-chunk for the calling thread's rows of the state.
template <class Shape>
__device__ __forceinline__ void load_decays(StateDecays<Shape::kDk>& decays, const PreparedTiles<Shape>& tiles) {
  const float* first = tiles.decays + lane_index() % 4 * 2;
#pragma unroll
  for (int d = 0; d < Shape::kDk; d += 8) decays[d / 8] = *reinterpret_cast<const float2*>(first + d);
}

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlock, 1)
    warp_specialized_kernel(Bf16Arguments a, const __grid_constant__ Maps maps) {
  constexpr int kWalkers = fused_gla::kWalkers<Shape>, kPreparers = fused_gla::kPreparers<Shape>;
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  __shared__ Barrier raw_full[kSlots], prepared_full[kSlots], prepared_empty[kSlots];
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth];
  __shared__ Barrier output_full[kWalkers][kDepth], output_empty[kWalkers][kDepth];
  const Memory<Shape> memory{dynamic_shared<unsigned char, kTileAlignment>()};

  if (threadIdx.x == 0) {
    for (Barrier& barrier : raw_full) barrier.init(1);
    for (Barrier& barrier : prepared_full) barrier.init(1);
    for (Barrier& barrier : prepared_empty) barrier.init(4 * kWalkers);
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4 * kWalkers);
    for (int walker = 0; walker < kWalkers; ++walker) {
      for (Barrier& barrier : output_full[walker]) barrier.init(4);
      for (Barrier& barrier : output_empty[walker]) barrier.init(3);
    }
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    decrease_registers<56>();
    const int thread = int(threadIdx.x);
    if (thread == 0) {
      auto ring = Ring<kPipelineDepth>::producer();
      for (int t = 0; t < a.L; t += kChunk) {
        ring.wait(empty);
        full[ring.stage()].arrive_expect(kWalkers * PanelTile<64>::kPanelBytes);
        load_panels(memory.values(ring.stage()), maps.v, full[ring.stage()],
                    {.column = first_column, .position = t, .head = h, .batch = b});
        ring.advance();
      }
    } else if (thread >= 32) {
      auto ring = Ring<kDepth>::consumer();
      for (int t = 0; t < a.L; t += kChunk) {
#pragma unroll 1
        for (int walker = 0; walker < kWalkers; ++walker) {
          const int column = first_column + walker * kWarpgroupColumns;
          ring.wait(output_full[walker]);
          store_tile_by<kStoreThreads>(thread - 32, a.o.row(b, h, t) + column, a.o.stride_l, a.L - t, a.Dv - column,
                                       memory.output(walker, ring.stage()), [&] {
                                         __syncwarp();
                                         if (lane_index() == 0) output_empty[walker][ring.stage()].arrive();
                                       });
        }
        ring.advance();
      }
    }
  } else if (group <= kPreparers / 4) {
    increase_registers<152>();
    constexpr int kRawDepth = fused_gla::kRawDepth<Shape>, kSlices = Shape::kDk / kPreparedColumns;
    constexpr int kStep = kPreparers * kSubChunk;  // positions from a sub-chunk of this warp to the next
    const int warp = int(threadIdx.x) / 32 - 4, lane = int(lane_index());
    const AnchoredTiles anchored = memory.anchored(warp);
    Barrier* const raw_barriers = raw_full + warp * kRawDepth;
    const auto load = [&](int t, int slice, int stage) {
      if (lane > 0 || t >= a.L) return;
      const RawTiles raw = memory.raw(warp * kRawDepth + stage);
      const TileOrigin origin{.column = slice * kPreparedColumns, .position = t, .head = h, .batch = b};
      raw_barriers[stage].arrive_expect(RawTiles::kBytes);
      load_panels(raw.q, maps.q, raw_barriers[stage], origin);
      load_panels(raw.k, maps.k, raw_barriers[stage], origin);
      load_panels(raw.g, maps.g, raw_barriers[stage], origin);
    };
    // P above its diagonal stays zero.
    for (int slot = warp; slot < kSlots; slot += kPreparers) {
      const PreparedTiles<Shape> tiles = memory.prepared(slot);
      for (int i = lane; i < kSubChunk * kSubChunk / 2; i += 32) {
        const int row = i / 8, column = tiles.first_column + i % 8 * 2;
        store_for_copies(
            reinterpret_cast<std::uint32_t*>(tiles.P.data + tiles.P.unit(row, column / 8 * 8) + column % 8), 0u);
      }
    }
    fence_async_proxy();
    __syncwarp();
    auto raw_ring = Ring<kRawDepth>::consumer();
    auto ring = Ring<kSlots>::producer();
    for (int i = 0; i < warp; ++i) ring.advance();
    for (int i = 0; i < kRawDepth; ++i) load(warp * kSubChunk + i / kSlices * kStep, i % kSlices, i);
    const int end = (a.L + kChunk - 1) / kChunk * kChunk;
#pragma unroll 1
    for (int t = warp * kSubChunk; t < end; t += kStep) {
      const PreparedTiles<Shape> tiles = memory.prepared(ring.stage());
      SubChunkScores scores = {};
#pragma unroll 1
      for (int slice = 0; slice < kSlices; ++slice) {
        RawRows rows = {};
        if (t < a.L) {
          raw_ring.wait(raw_barriers);
          load_rows(rows, memory.raw(warp * kRawDepth + raw_ring.stage()));
        }
        __syncwarp();
        const int next = slice + kRawDepth;
        load(t + next / kSlices * kStep, next % kSlices, raw_ring.stage());
        raw_ring.advance();
        if (slice == 0) ring.wait(prepared_empty);
        prepare_columns(rows, anchored, ToTiles<Shape>{tiles, slice * kPreparedColumns + lane * 2}, scores);
      }
      store_scores(tiles.P, tiles.first_column, scores);
      fence_async_proxy();
      __syncwarp();
      if (lane == 0) prepared_full[ring.stage()].arrive();
      for (int i = 0; i < kPreparers; ++i) ring.advance();
    }
  } else {
    increase_registers<152>();
    const int walker = group - 1 - kPreparers / 4, column = first_column + walker * kWarpgroupColumns;
    WarpgroupState<Shape::kDk> S;
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + column : nullptr;
    load_group_state<Shape::kDk>(S, start, a.initial_state.stride_l, a.Dk, a.Dv - column);
    auto ring = Ring<kPipelineDepth>::consumer();
    auto prepared_ring = Ring<kSlots>::consumer();
    auto output_ring = Ring<kDepth>::producer();
    for (int t = 0; t < a.L; t += kChunk) {
      const PanelTile<64> V{memory.values(ring.stage()).data + walker * PanelTile<64>::kPanelElements};
      const PanelTile<64> output = memory.output(walker, output_ring.stage());
      output_ring.wait(output_empty[walker]);
      ring.wait(full);
#pragma unroll 1
      for (int row = 0; row < kChunk; row += kSubChunk) {
        prepared_ring.wait(prepared_full);
        const PreparedTiles<Shape> tiles = memory.prepared(prepared_ring.stage());
        const auto v = k_from_row_to_row(V).along_k(row);
        StateDecays<Shape::kDk> decays;
        load_decays<Shape>(decays, tiles);
        RoundedState<Shape::kDk> s;
        SubChunkOutput O;
        round_state<Shape::kDk>(s, S);
        decay_state<Shape::kDk>(S, decays);
        wgmma_fence(O, s, S);
        start_sub_chunk_output<Shape::kDk>(O, s, k_along_rows(tiles.Q));
        start_sub_chunk_output(O, v, k_along_rows(tiles.P).along_k(row));
        wgmma_commit();
        start_sub_chunk_update<Shape::kDk>(S, v, k_from_row_to_row(tiles.K));
        wgmma_commit();
        wgmma_wait<1>(O, s);
        put_sub_chunk_output(output, O, row, a.scale);
        wgmma_wait<0>(S);
        if (lane_index() == 0) prepared_empty[prepared_ring.stage()].arrive();
        prepared_ring.advance();
      }
      __syncwarp();
      if (lane_index() == 0) {
        empty[ring.stage()].arrive();
        output_full[walker][output_ring.stage()].arrive();
      }
      ring.advance();
      output_ring.advance();
    }
    if (a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + column, S, a.final_state.stride_l, a.Dk,
                                    a.Dv - column);
    }
  }
}

Maps maps_of(const Bf16Arguments& a) {
  const TensorSizes keys = tensor_sizes(a, a.Dk);
  return {tile_map(a.q, keys, kSubChunk), tile_map(a.k, keys, kSubChunk), tile_map(a.v, tensor_sizes(a, a.Dv), kChunk),
          float_tile_map(a.g, keys, kSubChunk)};
}

}  // namespace

void warp_specialized(const Bf16Arguments& a) {
  const auto start = [&]<class Shape>(Shape) {
    launch(warp_specialized_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kBlock, Memory<Shape>::kBytes}, a,
           maps_of(a));
  };
  const bool wide = one_kernel_columns(a) == 128;
  if (a.Dk <= 64) {
    wide ? start(PanelShape<64, 128>()) : start(PanelShape<64, 64>());
  } else {
    wide ? start(PanelShape<128, 128>()) : start(PanelShape<128, 64>());
  }
}

std::string warp_specialized_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = one_kernel_unsupported(a); !reason.empty()) return reason;
  if (a.Dk > 128) return "Dk > 128: the state and its copies would not fit into a warpgroup's registers";
  if (const std::string reason = bulk_copies_unsupported(a); !reason.empty()) return reason;
  return why_floats_are_not_mapped(a.g, tensor_sizes(a, a.Dk), kSubChunk);
}

}  // namespace tutorial::fused_gla
