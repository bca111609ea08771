/// @file
/// The kernels of `segments` (../../gla/6_segments.cu) in the segments of packed sequences, as chapter 02's `packed` cuts
/// them (common/tile/packed_segments.cuh).
///
/// Bulk copies load a chunk from any position on, but they cannot stop at a border: the tensor map knows only where all of
/// the positions end. So the last chunk of a sequence arrives together with the first rows of the next one, and whoever waits
/// for them first clears them: the warp that prepares a half of a sub-chunk its keys and gates, which then are gates of 1,
/// and the warp that loads V its rows. Q needs no clearing, because each of its rows only becomes an output of its own. The
/// outputs of this chunk leave by ordinary stores, since a bulk store would write over the next sequence.
///
///     raw_full    -> the preparing warp clears k and g -> levels, slots, as in `segments`
///     last_full   -> the loading warp clears V         -> full, the walk
///     output_full -> the storing warp: all rows, by a bulk store, or those of the sequence, by its lanes

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "04_fused_chunk/gla/level_slots.cuh"
#include "04_fused_chunk/gla/score_levels.cuh"
#include "04_fused_chunk/gla/segment_starts.cuh"
#include "04_fused_chunk/gla_packed/dispatch/hopper_walk.hpp"
#include "common/device/elect.cuh"
#include "common/device/launch.cuh"
#include "common/device/registers.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/carry.cuh"
#include "common/tile/carry_sequences.cuh"
#include "common/tile/packed_segments.cuh"
#include "common/tile/packed_states.cuh"
#include "common/tile/rows_of_sequence.cuh"
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

/// The states of every segment that another one follows. Grid packed_grid() of them.
/// @param states [plan.states, H, Dk, Dv] @param decays [plan.states, H, 4, Dk]
template <class Shape>
__global__ void __launch_bounds__(kStateBlock<Shape>, 1)
    packed_states_kernel(Bf16Arguments a, const __grid_constant__ StateMaps maps, PackedPlan plan, float* states,
                         float* decays) {
  const PackedPart<Shape> part(extents_of(a), plan);
  if (part.sequence < 0) return;
  compute_segment_state<Shape>(a, maps, part, part.begin, std::int64_t(part.entry) * a.H + part.h, states, decays);
}

/// Clears what a half of a sub-chunk has of keys and gates from row `first` on. Called by the warp that prepares it.
template <int kDk>
__device__ __forceinline__ void clear_half(const LevelTiles<kDk>& tiles, int half, int first) {
  constexpr int kUnits = 128 / 16;  // of a row of a panel
  const auto clear = [&](unsigned char* rows) {
    for (int i = first * kUnits + int(lane_index()); i < kHalf * kUnits; i += 32) {
      reinterpret_cast<uint4*>(rows)[i] = make_uint4(0, 0, 0, 0);
    }
  };
  const SixteenRows<kDk> raw = tiles.raw(half);
  const FloatPanels<kHalf, kDk> gates = tiles.gates(half);
  auto* keys = reinterpret_cast<unsigned char*>(raw.data) + kHalf * 128;
  auto* first_gates = reinterpret_cast<unsigned char*>(const_cast<float*>(gates.data));
#pragma unroll 1
  for (int panel = 0; panel < kDk / 64; ++panel) clear(keys + panel * int(raw.kPanelBytes));
#pragma unroll 1
  for (int panel = 0; panel < kDk / 32; ++panel) clear(first_gates + panel * gates.kPanelElements * 4);
  __syncwarp();
}

/// Walks all segments. Grid packed_grid() of them.
template <class Shape>
__global__ void __launch_bounds__(kBlock<Shape>, 1)
    packed_walk_kernel(Bf16Arguments a, const __grid_constant__ Maps maps, PackedPlan plan) {
  constexpr int kWalkers = fused_gla::kWalkers<Shape>;
  if (const PackedPart<Shape> part(extents_of(a), plan); part.begin == part.end) {  // or of no sequence
    if (part.sequence >= 0) hand_state_on(a, part);
    return;
  }
  __shared__ Barrier last_full;  // V of the last chunk, with rows of the next sequence
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
    last_full.init(1);
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
    const PackedPart<Shape> part(extents_of(a), plan);
    const int h = part.h, begin = part.begin, end = part.end, first_column = part.first_column;
    const int warp = warp_in_group(), lane = int(lane_index());
    if (warp == 0) {
      auto ring = Ring<kPipelineDepth>::producer();
      for (int t = begin; t < end; t += kChunk) {
        const PanelTile<Shape::kDv> V = memory.values(ring.stage());
        const bool is_whole = end - t >= kChunk;
        ring.wait(empty);
        if (lane == 0) {
          Barrier& barrier = is_whole ? full[ring.stage()] : last_full;
          barrier.arrive_expect(kWalkers * PanelTile<64>::kPanelBytes);
          load_panels(V, maps.v, barrier, {.column = first_column, .position = t, .head = h});
        }
        if (!is_whole) {
          last_full.wait(0);
          clear_rows(V, end - t);
          fence_async_proxy();
          __syncwarp();
          if (lane == 0) full[ring.stage()].arrive();
        }
        ring.advance();
      }
    } else if (warp == 1) {
      auto ring = Ring<1>::consumer();
      for (int t = begin; t < end; t += kChunk) {
#pragma unroll 1
        for (int walker = 0; walker < kWalkers; ++walker) {
          const int offset = walker * kWarpgroupColumns, column = first_column + offset;
          ring.wait(output_full + walker);
          if (end - t < kChunk) {
            store_rows_of_sequence(a.o.row(0, h, t) + column, a.o.stride_l, end - t, part.columns - offset,
                                   memory.output(walker));
          } else if (lane == 0) {
            store_tile(maps.o, memory.output(walker).data, {.column = column, .position = t, .head = h});
            commit_stores();
            wait_stores_read<0>();
            output_empty[walker].arrive();
          }
        }
        ring.advance();
      }
    }
  } else if (group == 1) {
    decrease_registers<56>();
    const PackedPart<Shape> part(extents_of(a), plan);
    const int begin = part.begin, end = part.end;
    // The warp multiplies one sub-chunk of each chunk.
    const int warp = uniform(warp_in_group()), lane = int(lane_index());
    const auto levels = memory.levels(warp);
    Barrier* const raw_barriers = raw_full + warp * 2;
    // The last chunk is whole: positions that do not exist are loaded as zeros, and those of the next sequence are
    // cleared by the warp that prepares them.
    const int last = begin + (end - begin + kChunk - 1) / kChunk * kChunk;
    const auto load = [&](int t, int half) {
      if (t >= last || !elect_one()) return;
      fence_async_proxy();  // q, k and g have been read by ordinary loads and ldmatrix
      raw_barriers[half].arrive_expect(levels.kLoadedBytes);
      load_half(levels, half, maps, raw_barriers[half], {.position = t + half * kHalf, .head = part.h});
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
    const PackedPart<Shape> part(extents_of(a), plan);
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
        const int rows = part.end - t - warp * kSubChunk - kNumber * kHalf;
        if (rows < kHalf) clear_half(levels, kNumber, max(rows, 0));
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
    {
      const PackedPart<Shape> part(extents_of(a), plan);
      const ConstRows start = start_of(a, part, plan);
      load_group_state<Shape::kDk>(S, start.data ? start.data + offset : nullptr, start.stride, a.Dk,
                                   part.columns - offset);
    }
    // Computed again, because S and its addresses leave no registers to keep it in.
    const PackedPart<Shape> part(extents_of(a), plan);
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
    if (part.entry >= plan.states && a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(part.sequence, part.h, 0) + part.first_column + offset, S,
                                    a.final_state.stride_l, a.Dk, part.columns - offset);
    }
  }
}

Maps maps_of(const Bf16Arguments& a) {
  const TensorSizes keys = tensor_sizes(a, a.Dk);
  return {tile_map(a.q, keys, kHalf), tile_map(a.k, keys, kHalf), tile_map(a.v, tensor_sizes(a, a.Dv), kChunk),
          float_tile_map(a.g, keys, kHalf), output_map(a)};
}

/// Elements of the decays.
std::int64_t decays_of(const PackedBf16Arguments& p, const PackedPlan& plan) {
  return std::int64_t(plan.states) * p.all.H * kSubChunks * p.all.Dk;
}

template <class Shape>
void launch_packed(const PackedBf16Arguments& p, PackedPlan plan) {
  const Bf16Arguments& a = p.all;
  const Extents extents = extents_of(a);
  plan.segments = list_segments(p.cu_seqlens, plan);
  if (plan.states > 0) {
    float* states = workspace<float>(
        "gla: states of segments", std::size_t(plan.states) * std::size_t(a.H) * std::size_t(a.Dk) * std::size_t(a.Dv));
    float* decays = workspace<float>("gla: decays of segments", std::size_t(decays_of(p, plan)));
    const TensorSizes keys = tensor_sizes(a, a.Dk);
    const StateMaps maps{tile_map(a.k, keys, kSubChunk), tile_map(a.v, tensor_sizes(a, a.Dv), kChunk),
                         float_tile_map(a.g, keys, kSubChunk)};
    launch(packed_states_kernel<Shape>,
           {packed_grid<Shape>(extents, plan.states), kStateBlock<Shape>, StateMemory<Shape>::kBytes}, a, maps, plan,
           states, decays);
    carry_sequences(a.initial_state, plan, extents, RowDecay<kSubChunks>{decays, a.Dk}, states);
    plan.starts = states;
  }
  launch(packed_walk_kernel<Shape>, {packed_grid<Shape>(extents, plan.entries()), kBlock<Shape>, kLevelBytes<Shape>}, a,
         maps_of(a), plan);
}

}  // namespace

void hopper_packed(const PackedBf16Arguments& p, PackedPlan plan) {
  if (p.all.Dk <= 64) {
    plan.columns == 128 ? launch_packed<PanelShape<64, 128>>(p, plan) : launch_packed<PanelShape<64, 64>>(p, plan);
  } else {
    plan.columns == 128 ? launch_packed<PanelShape<128, 128>>(p, plan) : launch_packed<PanelShape<128, 64>>(p, plan);
  }
}

std::int64_t hopper_packed_memory(const PackedBf16Arguments& p, const PackedPlan& plan) {
  return packed_plan_memory(extents_of(p.all), plan) + std::int64_t(sizeof(float)) * decays_of(p, plan);
}

}  // namespace tutorial::fused_gla
