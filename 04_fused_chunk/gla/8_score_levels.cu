/// @file
/// `score_levels`: an anchor for every pair of a sub-chunk, and preparing warps that have all columns of Dk.
///
/// Idea: a preparing warp of `warp_specialized` executes 2300 instructions per sub-chunk, of which 460 add up 40 pairs
/// over its lanes, and 700 compute addresses. Both have one cause, a lane's two columns of a slice of 64. Here a lane
/// has four columns of all 128, so one instruction loads or stores twice as much. And with anchors at every second
/// position, too, no pair is left for fp32: pairs of neighbours need no factor on the key, and P_tt needs no factor at
/// all (common/tile/score_levels.cuh has the picture). So nothing is added up over lanes.
///
///     loads (1 thread)           V ------------------------------> walking warpgroup (one per 64 columns of Dv)
///     preparing warp w, itself   q, k, g -> slot w, w + 4, ... --> the same, slot by slot: O, S
///     stores (3 warps)           O <------------------------------ the same
///
/// Grows out of: 7_warp_specialized.cu; large step: the pairs that were left in fp32 become products, so the
/// preparing warps are written anew.
/// Improves on: in `warp_specialized`, preparing takes most of the instructions. With tiles of 128 columns it has one
/// warp per scheduler, and the two walking warpgroups wait for it.
/// Unchanged: the walk, the roles and the slots.
/// Shapes: as `warp_specialized`. Raw tiles have 8 positions, a half of a sub-chunk, and all columns of Dk; q and k
/// remain in them, because they are factors of the levels = and 1.
/// Thread mapping: block (tile and segment, h, b) has 64 or 128 columns of Dv; this stage has one segment. Warpgroup 0
/// loads V and stores O, warpgroup 1 prepares, and one walks for each 64 columns.
/// Synchronization: as `warp_specialized`. There is one tile of outputs per walking warpgroup: the walk waits for it
/// (`output_empty`) only when it has the first outputs of the next chunk.
/// Fences: q~, k~ and P are written by ordinary stores and read by products. Each lane fences them before its warp
/// arrives.
/// Resources: registers per thread: 56 for loads and stores; for a tile of 128 columns 152 for each of the other three
/// warpgroups, together 512. 8 slots, 8 halves of q, k and g, two V, one O per walking warpgroup and 20 KB of factors:
/// 220 KB of shared memory at Dk = 128 and 128 columns.
/// Work: the walk as `warp_specialized`. Per sub-chunk 40 mma for the scores at Dk = 128, and no pair in fp32.
/// Bytes: as `warp_specialized`.
/// Bound by: instructions and bytes: per chunk and scheduler about 1550 of the preparing warp and 970 of each walking
/// warp. The bytes of shared memory come next: some 500 KB per chunk.
/// Requires: as `warp_specialized`.
/// Weakness: one block per head and tile of Dv, as before.
/// Sources: arXiv 2312.06635, section 4.3, for levels of chunks, here down to a single position.

#include <cuda_runtime.h>

#include "04_fused_chunk/fused_gla.hpp"
#include "04_fused_chunk/gla/level_slots.cuh"
#include "04_fused_chunk/gla/one_kernel.hpp"
#include "common/device/elect.cuh"
#include "common/device/launch.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/store_tile.cuh"

namespace tutorial::fused_gla {
namespace {

using namespace tile;

constexpr int kStoreThreads = kWarpgroup - 32;

/// Threads.
template <class Shape>
constexpr int kBlock = (2 + kWalkers<Shape>)*kWarpgroup;

/// The tensors that bulk copies read.
struct Maps {
  TensorMap q, k, v, g;
};

/// Registers per thread of a warp that prepares, and of one that walks. With those of loads and stores they are what
/// the launch allocates.
template <class Shape>
constexpr int kPreparingRegisters = kWalkers<Shape> == 1 ? 224 : 152;
template <class Shape>
constexpr int kWalkingRegisters = kWalkers<Shape> == 1 ? 224 : 152;

/// Computes the scores of a half that the warp has prepared.
template <int kNumber, int kDk>
__device__ __forceinline__ void multiply(const LevelTiles<kDk>& levels, LevelScores& scores) {
  __syncwarp();
  score_levels::multiply_half<kNumber>(levels, scores);
  __syncwarp();
}

/// Grid (tiles of Dv of all segments, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlock<Shape>, 1)
    score_levels_kernel(Bf16Arguments a, const __grid_constant__ Maps maps, LaunchPlan plan) {
  constexpr int kWalkers = fused_gla::kWalkers<Shape>;
  __shared__ Barrier raw_full[2 * kSubChunks];
  __shared__ Barrier prepared_full[kSubChunks][kChunkSlots], prepared_empty[kSubChunks][kChunkSlots];
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth], output_full[kWalkers], output_empty[kWalkers];
  const LevelMemory<Shape> memory{dynamic_shared<unsigned char, kTileAlignment>()};

  if (threadIdx.x == 0) {
    for (Barrier& barrier : raw_full) barrier.init(1);
    for (int r = 0; r < kSubChunks; ++r) {
      for (Barrier& barrier : prepared_full[r]) barrier.init(1);
      for (Barrier& barrier : prepared_empty[r]) barrier.init(4 * kWalkers);
    }
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4 * kWalkers);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(3);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    decrease_registers<56>();
    const BlockPart<Shape> part(extents_of(a), plan.length);
    const int b = part.b, h = part.h, begin = part.begin, end = part.end, first_column = part.first_column;
    const int thread = int(threadIdx.x);
    if (thread == 0) {
      auto ring = Ring<kPipelineDepth>::producer();
      for (int t = begin; t < end; t += kChunk) {
        ring.wait(empty);
        full[ring.stage()].arrive_expect(kWalkers * PanelTile<64>::kPanelBytes);
        load_panels(memory.values(ring.stage()), maps.v, full[ring.stage()],
                    {.column = first_column, .position = t, .head = h, .batch = b});
        ring.advance();
      }
    } else if (thread >= 32) {
      auto ring = Ring<1>::consumer();
      for (int t = begin; t < end; t += kChunk) {
#pragma unroll 1
        for (int walker = 0; walker < kWalkers; ++walker) {
          const int column = first_column + walker * kWarpgroupColumns;
          ring.wait(output_full + walker);
          store_tile_by<kStoreThreads>(thread - 32, a.o.row(b, h, t) + column, a.o.stride_l, end - t, a.Dv - column,
                                       memory.output(walker), [&] {
                                         __syncwarp();
                                         if (lane_index() == 0) output_empty[walker].arrive();
                                       });
        }
        ring.advance();
      }
    }
  } else if (group == 1) {
    increase_registers<kPreparingRegisters<Shape>>();
    const BlockPart<Shape> part(extents_of(a), plan.length);
    const int begin = part.begin, end = part.end;
    // The warp prepares one sub-chunk of each chunk.
    const int warp = uniform(warp_in_group()), lane = int(lane_index());
    const auto levels = memory.levels(warp);
    Barrier* const raw_barriers = raw_full + warp * 2;
    // The last chunk is whole: positions that do not exist are loaded as zeros.
    const int last = begin + (end - begin + kChunk - 1) / kChunk * kChunk;
    const auto load = [&](int t, int half) {
      if (t >= last || !elect_one()) return;
      fence_async_proxy();  // q, k and g have been read by ordinary loads and ldmatrix
      raw_barriers[half].arrive_expect(levels.kLoadedBytes);
      load_half(levels, half, maps, raw_barriers[half],
                {.position = t + half * kHalf, .head = part.h, .batch = part.b});
    };
    for (int half = 0; half < 2; ++half) load(begin + warp * kSubChunk, half);
    // P above its diagonal stays zero.
    for (int stage = 0; stage < kChunkSlots; ++stage) {
      const PreparedTiles<Shape> tiles = memory.prepared(stage, warp);
      for (int i = lane; i < kSubChunk * kSubChunk / 2; i += 32) {
        const int row = i / 8, column = tiles.first_column + i % 8 * 2;
        store_for_copies(
            reinterpret_cast<std::uint32_t*>(tiles.P.data + tiles.P.unit(row, column / 8 * 8) + column % 8), 0u);
      }
    }
    fence_async_proxy();
    __syncwarp();
    auto raw_ring = Ring<1>::consumer();
    auto ring = Ring<kChunkSlots>::producer();
#pragma unroll 1
    for (int t = begin + warp * kSubChunk; t < last; t += kChunk) {
      const PreparedTiles<Shape> tiles = memory.prepared(ring.stage(), warp);
      const ToSlot<Shape> out{tiles, score_levels::lane_byte<Shape::kDk>()};
      LevelScores scores = {};
      FirstHalf<Shape::kDk> first;
      raw_ring.wait(raw_barriers);
      ring.wait(prepared_empty[warp]);
      prepare_half<0>(levels, out, first, [] {});
      multiply<0>(levels, scores);
      load(t + kChunk, 0);
      raw_ring.wait(raw_barriers + 1);
      prepare_half<1>(levels, out, first, [] {});
      multiply<1>(levels, scores);
      load(t + kChunk, 1);
      raw_ring.advance();
      store_scores(tiles.P, tiles.first_column, scores);
      fence_async_proxy();
      __syncwarp();
      if (lane == 0) prepared_full[warp][ring.stage()].arrive();
      ring.advance();
    }
  } else {
    increase_registers<kWalkingRegisters<Shape>>();
    const int walker = group - 2, offset = walker * kWarpgroupColumns;  // of its columns in the block's
    WarpgroupState<Shape::kDk> S;
    if (const BlockPart<Shape> part(extents_of(a), plan.length); part.segment > 0) {
      const float* start = part.start(a.initial_state, plan, extents_of(a)).data + offset;
      load_group_state<Shape::kDk>(S, start, a.Dv, a.Dk, part.columns - offset);
    } else {
      const float* start = part.start(a.initial_state, plan, extents_of(a)).data;
      load_group_state<Shape::kDk>(S, start ? start + offset : nullptr, a.initial_state.stride_l, a.Dk,
                                   part.columns - offset);
    }
    // Computed again, because S and its addresses leave no registers to keep it in.
    const BlockPart<Shape> part(extents_of(a), plan.length, hide_from_compiler(int(blockIdx.x)));
    const int begin = part.begin, end = part.end;
    auto ring = Ring<kPipelineDepth>::consumer();
    auto prepared_ring = Ring<kChunkSlots>::consumer();
    auto output_ring = Ring<1>::producer();
    const PanelTile<64> output = memory.output(walker);
    for (int t = begin; t < end; t += kChunk) {
      const PanelTile<64> V{memory.values(ring.stage()).data + walker * PanelTile<64>::kPanelElements};
      ring.wait(full);
#pragma unroll 1
      for (int r = 0; r < kSubChunks; ++r) {
        const int row = r * kSubChunk;
        prepared_ring.wait(prepared_full[r]);
        const PreparedTiles<Shape> tiles = memory.prepared(prepared_ring.stage(), r);
        const auto v = k_from_row_to_row(V).along_k(row);
        StateDecays<Shape::kDk> decays;
        OrderedDecays<Shape::kDk>{tiles.decays}.load(decays);
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
        if (r == 0) output_ring.wait(output_empty + walker);
        put_sub_chunk_output(output, O, row, a.scale);
        wgmma_wait<0>(S);
        __syncwarp();  // all lanes have read the decays
        if (lane_index() == 0) prepared_empty[r][prepared_ring.stage()].arrive();
      }
      prepared_ring.advance();
      __syncwarp();
      if (lane_index() == 0) {
        empty[ring.stage()].arrive();
        output_full[walker].arrive();
      }
      ring.advance();
      output_ring.advance();
    }
    if (end == a.L && a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(part.b, part.h, 0) + part.first_column + offset, S,
                                    a.final_state.stride_l, a.Dk, part.columns - offset);
    }
  }
}

Maps maps_of(const Bf16Arguments& a) {
  const TensorSizes keys = tensor_sizes(a, a.Dk);
  return {tile_map(a.q, keys, kHalf), tile_map(a.k, keys, kHalf), tile_map(a.v, tensor_sizes(a, a.Dv), kChunk),
          float_tile_map(a.g, keys, kHalf)};
}

}  // namespace

void score_levels_walk(const Bf16Arguments& a, const LaunchPlan& plan) {
  const auto start = [&]<class Shape>(Shape) {
    launch(score_levels_kernel<Shape>,
           {grid_of<Shape>(extents_of(a), plan.segments), kBlock<Shape>, LevelMemory<Shape>::kBytes}, a, maps_of(a),
           plan);
  };
  if (a.Dk <= 64) {
    plan.columns == 128 ? start(PanelShape<64, 128>()) : start(PanelShape<64, 64>());
  } else {
    plan.columns == 128 ? start(PanelShape<128, 128>()) : start(PanelShape<128, 64>());
  }
}

void score_levels(const Bf16Arguments& a) {
  score_levels_walk(a, make_launch_plan(a.L, one_kernel_columns(a), 1));
}

}  // namespace tutorial::fused_gla
