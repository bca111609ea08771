/// @file
/// `score_levels`: an anchor for every pair of a sub-chunk, so that tensor cores have all scores, and warps for them.
///
/// Idea: a preparing warp of `specialized` computes 136 pairs per sub-chunk in fp32 and adds each of them up over its
/// lanes. But a decay between two positions is a product of gates, and such a product can be cut anywhere: at an anchor,
/// a position between the two (score_levels.cuh has the picture). Then one factor belongs to the query and one to the
/// key, both at most 1, and pairs that share an anchor are a product of matrices. With anchors at every position no
/// pair is left for fp32: pairs of neighbours need no factor on the key, and P_tt needs no factor at all. A preparing
/// warp only multiplies rows by decays. A lane has four columns of all 128, so one instruction loads or stores twice as
/// much as before.
/// All other warps wait for those that prepare. Loading fragments, multiplying them and storing scores would be 300 of
/// their 1540 instructions per sub-chunk, and every product waits for the one before. So four other warps do that. The
/// registers are there if bulk copies store O: then three warps have nothing to do any more.
///
///     loads (1 thread)              V ------------------------------> walking warpgroup (one per 64 columns of Dv)
///     preparing warp w              q, k, g -> slot w, w + 4, ... --> the same, slot by slot: O, S
///                                   `- levels -> multiplying warp w: P ^
///     stores (1 thread)             O <------------------------------ the same
///
/// Grows out of: 4_specialized.cu; large step: a stage in between would have preparing warps that multiply the levels
/// themselves; it needs all of score_levels.cuh and of the slots, and differs by 120 lines that nothing else needs
/// Improves on: in `specialized`, preparing takes most of the instructions, and the walking warpgroup waits for it.
/// Unchanged: the products of a sub-chunk; nothing but inputs and outputs is in memory.
/// Shapes: as `one_kernel`. A slot has q~ and k~ of a sub-chunk [16, kDk], its decays [kDk] and P [16, 16], a part of a
/// panel that four slots share (level_slots.cuh). Raw tiles have 8 positions, a half of a sub-chunk, and all columns of
/// Dk; q and k remain in them, because they are factors of the levels = and 1.
/// Thread mapping: block (tile and segment, h, b) has 64 or 128 columns of Dv; this stage has one segment. One thread of
/// warpgroup 0 loads V, another one stores O. Warpgroup 1 multiplies levels, warpgroup 2 prepares, each with a warp for
/// each sub-chunk of a chunk. One warpgroup walks for each 64 columns.
/// Synchronization: a preparing warp waits for its copies (`raw_full`) and for a free slot (`prepared_empty`). The walk
/// waits for V (`full`), for a slot (`prepared_full`) and, when it has the first outputs of the next chunk, for its tile
/// of outputs (`output_empty`). The stores wait for outputs (`output_full`), and the loads for a free tile of V
/// (`empty`). A preparing warp and a multiplying one exchange halves: `levels_full` says that the rows of the levels are
/// there, `levels_empty` that they are read. The multiplying warp is the last that reads q and k as loaded, so it asks
/// for the next ones. In a plan with `starts_early` the walk of a segment waits for its first state.
/// Fences: q~, k~ and P are written by ordinary stores and read by products. Each lane fences them before its warp
/// arrives. The walk fences O for the bulk store.
/// Resources: for a tile of 128 columns 640 threads, which start with 96 registers. 24 for loads and stores, 56 for
/// those that multiply, 128 for those that prepare, 136 for those that walk. 8 slots, 8 halves of q, k and g, two V, one
/// O per walking warpgroup and 20 KB of factors: 220 KB of shared memory at Dk = 128 and 128 columns.
/// Work: the walk as `specialized`. Per sub-chunk 40 mma for the scores at Dk = 128, and no pair in fp32.
/// Bytes: q, k and g once per tile of Dv, v and o once. No workspace.
/// Bound by: instructions and bytes: per chunk and scheduler about 1240 of the preparing warp and 970 of each walking
/// warp. The bytes of shared memory come next: some 500 KB per chunk.
/// Requires: as `specialized`, and tensors that bulk copies support.
/// Weakness: one block per head and tile of Dv, as before.
/// Sources: FlashAttention-3 (arXiv 2407.08608) for warpgroups with different tasks; arXiv 2312.06635, section 4.3, for
/// levels of chunks, here down to a single position.

#include <cuda_runtime.h>

#include <type_traits>

#include "04_fused_chunk/fused_gla.hpp"
#include "04_fused_chunk/gla/launch_plan.hpp"
#include "04_fused_chunk/gla/level_slots.cuh"
#include "common/device/elect.cuh"
#include "common/device/launch.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"

namespace tutorial::fused_gla {
namespace {

using namespace tile;

/// Threads: warpgroups that load and store, multiply, and prepare, and one that walks for each 64 columns of Dv.
template <class Shape>
constexpr int kBlock = (3 + kWalkers<Shape>)*kWarpgroup;

/// The tensors that bulk copies read or write.
struct Maps {
  TensorMap q, k, v, g, o;
};

/// Registers per thread of a warp that prepares, and of one that walks. With 24 of a warp that loads and stores and 56
/// of one that multiplies they are what the launch allocates: 512 for four warpgroups, 480 for five.
template <class Shape>
constexpr int kPreparingRegisters = kWalkers<Shape> == 1 ? 208 : 128;
template <class Shape>
constexpr int kWalkingRegisters = kWalkers<Shape> == 1 ? 224 : 136;

/// Grid (tiles of Dv of all segments, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlock<Shape>, 1)
    walk_kernel(Bf16Arguments a, const __grid_constant__ Maps maps, LaunchPlan plan) {
  constexpr int kWalkers = fused_gla::kWalkers<Shape>;
  const LevelMemory<Shape> memory{dynamic_shared<unsigned char, kTileAlignment>()};
  auto& [raw_full, levels_full, levels_empty, prepared_full, prepared_empty, full, empty, output_full, output_empty] =
      *reinterpret_cast<LevelBarriers<Shape>*>(memory.memory + LevelMemory<Shape>::kBytes);

  if (threadIdx.x == 0) {
    for (Barrier& barrier : raw_full) barrier.init(1);
    for (int r = 0; r < kSubChunks; ++r) {
      levels_full[r].init(1), levels_empty[r].init(1);
      for (Barrier& barrier : prepared_full[r]) barrier.init(2);  // P, and the rest
      for (Barrier& barrier : prepared_empty[r]) barrier.init(4 * kWalkers);
    }
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4 * kWalkers);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(1);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    decrease_registers<24>();
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
    } else if (thread == 32) {
      auto ring = Ring<1>::consumer();
      for (int t = begin; t < end; t += kChunk) {
#pragma unroll 1
        for (int walker = 0; walker < kWalkers; ++walker) {
          const int column = first_column + walker * kWarpgroupColumns;
          ring.wait(output_full + walker);
          store_tile(maps.o, memory.output(walker).data, {.column = column, .position = t, .head = h, .batch = b});
          commit_stores();
          wait_stores_read<0>();
          output_empty[walker].arrive();
        }
        ring.advance();
      }
    }
  } else if (group == 1) {
    decrease_registers<56>();
    const BlockPart<Shape> part(extents_of(a), plan.length);
    const int begin = part.begin, end = part.end;
    // The warp multiplies one sub-chunk of each chunk.
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
    auto levels_ring = Ring<1>::consumer();
    auto ring = Ring<kChunkSlots>::producer();
#pragma unroll 1
    for (int t = begin + warp * kSubChunk; t < last; t += kChunk) {
      LevelScores scores = {};
      const auto multiply = [&]<int kNumber>(std::integral_constant<int, kNumber>) {
        levels_ring.wait(levels_full + warp);
        level_rows::multiply_half<kNumber>(levels, scores);
        __syncwarp();
        if (lane == 0) levels_empty[warp].arrive();
        levels_ring.advance();
        load(t + kChunk, kNumber);
      };
      multiply(std::integral_constant<int, 0>());
      multiply(std::integral_constant<int, 1>());
      // The preparing warp has waited for the slot.
      const PreparedTiles<Shape> tiles = memory.prepared(ring.stage(), warp);
      store_scores(tiles.P, tiles.first_column, scores);
      fence_async_proxy();
      __syncwarp();
      if (lane == 0) prepared_full[warp][ring.stage()].arrive();
      ring.advance();
    }
  } else if (group == 2) {
    increase_registers<kPreparingRegisters<Shape>>();
    const BlockPart<Shape> part(extents_of(a), plan.length);
    // The warp prepares one sub-chunk of each chunk.
    const int warp = uniform(warp_in_group()), lane = int(lane_index());
    const auto levels = memory.levels(warp);
    auto raw_ring = Ring<1>::consumer();
    auto levels_ring = Ring<1>::producer();
    auto ring = Ring<kChunkSlots>::producer();
#pragma unroll 1
    for (int t = part.begin; t < part.end; t += kChunk) {
      const PreparedTiles<Shape> tiles = memory.prepared(ring.stage(), warp);
      const ToSlot<Shape> out{tiles, level_rows::lane_byte<Shape::kDk>()};
      FirstHalf<Shape::kDk> first;
      const auto prepare = [&]<int kNumber>(std::integral_constant<int, kNumber>) {
        raw_ring.wait(raw_full + warp * 2 + kNumber);
        prepare_half<kNumber>(levels, out, first, [&] { levels_ring.wait(levels_empty + warp); });
        __syncwarp();
        if (lane == 0) levels_full[warp].arrive();
        levels_ring.advance();
      };
      ring.wait(prepared_empty[warp]);
      prepare(std::integral_constant<int, 0>());
      prepare(std::integral_constant<int, 1>());
      raw_ring.advance();
      fence_async_proxy();
      __syncwarp();
      if (lane == 0) prepared_full[warp][ring.stage()].arrive();
      ring.advance();
    }
  } else {
    increase_registers<kWalkingRegisters<Shape>>();
    const int walker = uniform(group - 3), offset = walker * kWarpgroupColumns;  // of its columns in the block's
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
    const BlockPart<Shape> part(extents_of(a), hide_from_compiler(plan.length));
    const int begin = part.begin, end = part.end;
    auto ring = Ring<kPipelineDepth>::consumer();
    auto prepared_ring = Ring<kChunkSlots>::consumer();
    auto output_ring = Ring<1>::producer();
    __nv_bfloat16* const output = sub_chunk_output_place(memory.output(walker));
    for (int t = begin; t < end; t += kChunk) {
      const auto V =
          k_from_row_to_row(PanelTile<64>{memory.values(ring.stage()).data + walker * PanelTile<64>::kPanelElements});
      ring.wait(full);
#pragma unroll 1
      for (int r = 0; r < kSubChunks; ++r) {
        const int row = r * kSubChunk;
        prepared_ring.wait(prepared_full[r]);
        const PreparedTiles<Shape> tiles = memory.prepared(prepared_ring.stage(), r);
        const auto v = V.along_k(row);
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
        put_sub_chunk_output(output + row * 64, O, a.scale);
        wgmma_wait<0>(S);
        __syncwarp();  // all lanes have read the decays
        if (lane_index() == 0) prepared_empty[r][prepared_ring.stage()].arrive();
      }
      prepared_ring.advance();
      fence_async_proxy();  // O
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
          float_tile_map(a.g, keys, kHalf), output_map(a)};
}

}  // namespace

void score_levels(const Bf16Arguments& a) {
  const LaunchPlan plan = make_launch_plan(a.L, one_kernel_columns(a), 1);
  const auto start = [&]<class Shape>(Shape) {
    launch(walk_kernel<Shape>, launch_by_segments<Shape>(extents_of(a), plan, kBlock<Shape>, kLevelBytes<Shape>), a,
           maps_of(a), plan);
  };
  if (a.Dk <= 64) {
    plan.columns == 128 ? start(PanelShape<64, 128>()) : start(PanelShape<64, 64>());
  } else {
    plan.columns == 128 ? start(PanelShape<128, 128>()) : start(PanelShape<128, 64>());
  }
}

}  // namespace tutorial::fused_gla
