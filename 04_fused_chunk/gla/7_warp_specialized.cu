/// @file
/// `warp_specialized`: preparing warps beside walking warpgroups, both on tensor cores.
///
/// Idea: `one_kernel` is bound by instructions: per chunk and scheduler, its preparing warps execute 5000 and its
/// walking warps 2300. Here both need fewer. The walk uses products of warpgroups, as chapter 03's `warpgroup_walk`
/// does. And most scores of a sub-chunk become products, too: between two anchors, positions where the product of gates
/// from a key to a query is cut, every decay is a product of two factors of at most 1
/// (common/tile/prepare_sub_chunk.cuh has the picture). Of 136 pairs, only 40 are left to fp32 arithmetic.
///
///     loads (1 thread)           V ------------------------------> walking warpgroup (one per 64 columns of Dv)
///     preparing warp w, itself   q, k, g -> slot w, w + n, ... --> the same, slot by slot: O, S
///     stores (3 warps)           O <------------------------------ the same
///
/// Grows out of: 6_one_kernel.cu; large step: both kinds of warps are written anew, on bulk copies, roles and
/// products of warpgroups.
/// Improves on: in `one_kernel`, the two kinds of warps compete for the schedulers and meet at one barrier per chunk.
/// Unchanged: the equation; nothing but inputs and outputs is in memory. P is one number per pair again, because a warp
/// has all of Dk.
/// Shapes: as `one_kernel`. A slot has q~ and k~ of a sub-chunk [16, kDk], its decays [kDk] and P [16, 16], a part of a
/// panel that four slots share (prepared_slots.cuh).
/// Thread mapping: block (tile, h, b) has 64 or 128 columns of Dv. Warpgroup 0 loads V and stores O. Of the other three
/// warpgroups, one walks for each 64 columns, and the rest prepare: 8 or 4 warps, each with one sub-chunk at a time. A
/// preparing warp takes 64 columns of Dk at a time. It starts the copies of the next ones itself, as soon as these are
/// in its registers.
/// Synchronization: a preparing warp waits for its copies (`raw_full`) and for a free slot (`prepared_empty`). The walk
/// waits for V (`full`), for a slot (`prepared_full`) and for a free tile of outputs (`output_empty`). The stores wait
/// for outputs (`output_full`), and the loads for a free tile of V (`empty`).
/// Fences: q~, k~ and P are written by ordinary stores and read by products. Each lane fences them before its warp
/// arrives.
/// Resources: registers per thread of the four warpgroups: 56 for loads and stores and 152 for each of the other three,
/// together 512. 8 slots, 8 stages of q, k and g, two V and two O: 204 KB of shared memory at Dk = 128 and 64 columns,
/// 220 KB at 128.
/// Work: the walk as `warpgroup_walk`. Per sub-chunk 40 pairs in fp32, and 8 mma for every 64 columns of Dk.
/// Bytes: q, k and g once per tile of Dv, v and o once. No workspace.
/// Bound by: instructions, as `one_kernel`: per chunk and scheduler about 2100 of preparing warps and 1000 of each
/// walking warp.
/// Requires: compute capability 9.0, Dk <= 128, what `one_kernel` requires, and tensors that bulk copies support.
/// Weakness: with tiles of 64 columns, both blocks of a head prepare the same data. And there is only one block per
/// head and tile of Dv.
/// Sources: FlashAttention-3 (arXiv 2407.08608) for warpgroups with different tasks; arXiv 2312.06635, section 4.3, for
/// levels of chunks, here with 8 and 4 positions.

#include <cuda_runtime.h>

#include "04_fused_chunk/fused_gla.hpp"
#include "04_fused_chunk/gla/one_kernel.hpp"
#include "04_fused_chunk/gla/prepared_slots.cuh"
#include "common/device/launch.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/store_tile.cuh"

namespace tutorial::fused_gla {
namespace {

using namespace tile;

constexpr int kBlock = 4 * kWarpgroup;          // threads
constexpr int kStoreThreads = kWarpgroup - 32;  // of them

/// The tensors that bulk copies read.
struct Maps {
  TensorMap q, k, v, g;
};

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
      fence_async_proxy();  // q, k and g have been read by ordinary loads
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
        __syncwarp();  // all lanes have read the decays
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
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) return reason;
  if (const std::string reason = one_kernel_unsupported(a); !reason.empty()) return reason;
  if (a.Dk > 128) return "Dk > 128: the state and its copies would not fit into a warpgroup's registers";
  if (const std::string reason = bulk_copies_unsupported(a); !reason.empty()) return reason;
  return why_floats_are_not_mapped(a.g, tensor_sizes(a, a.Dk), kSubChunk);
}

}  // namespace tutorial::fused_gla
