/// @file
/// `segments`: the sequence is cut into segments, which are walked at once by the kernel of `score_levels`.
///
/// Idea: a segment needs one state of the positions before it. As in chapter 03's `segments`, a first kernel
/// computes the state H_m that segment m ends with if it starts from zeros, and its decay D_m; a second one carries the
/// states from segment to segment; then all segments are walked at once. But here nothing is prepared in memory: the
/// first kernel reads k, v and g, 8 of the 12 bytes that the walk reads and writes per element, and decays k in shared
/// memory beside products of warpgroups.
///
///     loads (1 thread)           V -----------------------> walking warpgroup (one per 64 columns of Dv)
///     decaying warps, themselves k, g -> slot of a chunk ---> S = diag(D) S + k~^T V
///
/// Grows out of: 5_score_levels.cu
/// Improves on: `score_levels` has only one block per head and tile of Dv. With 32 heads it leaves half of the
/// multiprocessors idle.
/// Unchanged: the walk.
/// Equation: as chapter 03's `segments`.
/// Shapes: H_m [B, H, segments - 1, Dk, Dv] and D_m [B, H, segments - 1, 4, Dk], four factors, fp32, in device memory.
/// Thread mapping: block (tile and segment, h, b). For each 64 columns of Dk, four warps decay the keys of one
/// sub-chunk of a chunk each, from its last position to its first. They first multiply their gates and tell each other
/// the products, so that they can decay to the end of the chunk: then the walk has one product and one decay per chunk,
/// not per sub-chunk. A warpgroup walks for each 64 columns of Dv. One thread loads V.
/// Synchronization: a decaying warp waits for its copies (`raw_full`), for the three other warps with its columns (a
/// named barrier) and for a free slot (`slot_empty`). The walk waits for V (`full`) and for a slot (`slot_full`), the
/// loads for a free tile of V (`empty`). With short segments the second and the third kernel start early and wait for
/// the one before (common/device/early_start.cuh).
/// Resources: at Dk = 128 and 128 columns 96 registers; two slots of k~ and decays, two stages of k and g for each
/// decaying warp and three V: 180 KB of shared memory.
/// Work: per chunk 450 instructions of a decaying warp and 160 of each walking warp.
/// Bytes: those of `score_levels`; k, v and g a second time, except those of the last segment; H_m is written,
/// read and written by the second kernel, and read again.
/// Bound by: the memory's bandwidth.
/// Requires: as `score_levels`.
/// Weakness: the second read of k, v and g, and two more launches.
/// Sources: chapter 03's `segments`.

#include <cuda_runtime.h>

#include <type_traits>

#include "04_fused_chunk/fused_gla.hpp"
#include "04_fused_chunk/gla/launch_plan.hpp"
#include "04_fused_chunk/gla/level_slots.cuh"
#include "04_fused_chunk/gla/score_levels.cuh"
#include "04_fused_chunk/gla/segment_starts.cuh"
#include "common/device/elect.cuh"
#include "common/device/launch.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/warpgroup_sub_chunk.cuh"

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

void walk_segments(const Bf16Arguments& a, LaunchPlan plan) {
  const auto start = [&]<class Shape>(Shape) {
    if (plan.segments > 1 && !plan.starts) plan.starts = segment_starts<Shape>(a, plan);
    launch(walk_kernel<Shape>, launch_by_segments<Shape>(extents_of(a), plan, kBlock<Shape>, kLevelBytes<Shape>), a,
           maps_of(a), plan);
  };
  if (a.Dk <= 64) {
    plan.columns == 128 ? start(PanelShape<64, 128>()) : start(PanelShape<64, 64>());
  } else {
    plan.columns == 128 ? start(PanelShape<128, 128>()) : start(PanelShape<128, 64>());
  }
}

void segments(const Bf16Arguments& a) {
  walk_segments(a, segments_plan(a));
}

}  // namespace tutorial::fused_gla
