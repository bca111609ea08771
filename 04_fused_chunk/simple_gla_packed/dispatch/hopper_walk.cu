/// @file
/// The walk of `register_scores` (../../simple_gla/5_register_scores.cu) in the segments of packed sequences, as chapter
/// 02's `packed` cuts them (common/tile/packed_segments.cuh), and the kernel for the states of segments that another one
/// follows (../../simple_gla/segment_state.cuh).
///
/// Bulk copies load a chunk from any position on, but they cannot stop at a border. So the last chunk of a sequence arrives
/// together with the first rows of the next one, and the warp that asked for it clears them in K and V before it says that
/// the chunk is there (common/tile/rows_of_sequence.cuh). The gates are loaded one by one, with 0 behind the end.

#include <cuda_runtime.h>

#include <cstdint>

#include "04_fused_chunk/simple_gla/chunk_decays.cuh"
#include "04_fused_chunk/simple_gla/decayed_values.cuh"
#include "04_fused_chunk/simple_gla/segment_state.cuh"
#include "04_fused_chunk/simple_gla_packed/dispatch/hopper_walk.hpp"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/carry.cuh"
#include "common/tile/carry_sequences.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/packed_segments.cuh"
#include "common/tile/packed_states.cuh"
#include "common/tile/rows_of_sequence.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::simple_gla {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 4;               // chunks in shared memory
constexpr int kDepth = 2;                       // O, and Q S in fp32, in shared memory
constexpr int kBlock = 4 * kWarpgroup;          // threads
constexpr int kStoreThreads = kWarpgroup - 64;  // of them

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth*(ChunkTiles<Shape>::kBytes + ChunkDecays::kBytes) +
                                     (PanelTile<64>::kPanelBytes + TransposedSums::kBytes) * kDepth;

/// A block's part as the kernel for states knows it. No segment starts from the initial state: the carry adds it.
template <class Shape>
struct Part : PackedPart<Shape> {
  static constexpr int segment = -1;
  using PackedPart<Shape>::PackedPart;
};

/// The states and decays of every segment that another one follows. Grid packed_grid() of them.
/// @param states [plan.states, H, Dk, Dv] @param decays [plan.states, H]
template <class Shape>
__global__ void __launch_bounds__(kStateBlock, 2)
    packed_states_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps, PackedPlan plan, float* states,
                         float* decays) {
  const Part<Shape> part(extents_of(a), plan);
  if (part.sequence < 0) return;
  const std::int64_t at = std::int64_t(part.entry) * a.H + part.h;
  walk_for_state<Shape>(a, maps, part, false, states + at * a.Dk * a.Dv, decays + at);
}

/// Walks all segments. Grid packed_grid() of them.
template <class Shape>
__global__ void __launch_bounds__(kBlock, 1)
    packed_walk_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps, PackedPlan plan) {
  const PackedPart<Shape> part(extents_of(a), plan);
  if (part.sequence < 0) return;
  if (part.begin == part.end) return hand_state_on(a, part);
  const int h = part.h, begin = part.begin, end = part.end, first_column = part.first_column, columns = part.columns;
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth], last_full;
  __shared__ Barrier state_full[kDepth], state_empty[kDepth], output_full[kDepth], output_empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return ChunkTiles<Shape>(memory + stage * ChunkTiles<Shape>::kBytes); };
  const auto panel = [&](int number) {
    return PanelTile<64>{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * ChunkTiles<Shape>::kBytes +
                                                          number * int(PanelTile<64>::kPanelBytes))};
  };
  const auto from_state_of = [&](int stage) { return TransposedSums(panel(kDepth).data, stage); };
  const auto decays_of = [&](int stage) { return ChunkDecays(from_state_of(kDepth).data, stage); };

  if (threadIdx.x == 0) {
    last_full.init(1);
    for (Barrier& barrier : full) barrier.init(2);       // one for the bytes, one for the decays
    for (Barrier& barrier : empty) barrier.init(4 + 4);  // the warps of the chunk's scores, and those of the state
    for (int i = 0; i < kDepth; ++i) state_full[i].init(4), state_empty[i].init(4);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(2);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group < 2) {
    decrease_registers<112>();
    auto ring = Ring<kPipelineDepth>::consumer();
    auto score_ring = Ring<kDepth>::producer();  // of O, which the scores become
    auto state_ring = Ring<kDepth>::consumer();
    for (int t = begin; t < end; t += kChunk) {
      if (t / kChunk % 2 == group) {
        const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
        const ChunkDecays decays = decays_of(ring.stage());
        WarpgroupScores scores;
        ring.wait(full);
        wgmma_fence(scores);
        start_scores(scores, tiles.Q, tiles.K);
        wgmma_commit();
        wgmma_wait<0>(scores);
        ScoreFragments p;
        decay_scores(p, scores, decays, a.scale);
        WarpgroupOutput O;
        wgmma_fence(O, p);
        start_output_from_scores(O, p, tiles.V);
        wgmma_commit();
        state_ring.wait(state_full);  // Q S
        wgmma_wait<0>(O, p);
        from_state_of(state_ring.stage()).add_to(O, decays.from_start_of_rows());
        __syncwarp();
        if (lane_index() == 0) empty[ring.stage()].arrive(), state_empty[state_ring.stage()].arrive();
        score_ring.wait(output_empty);
        put_rows(panel(score_ring.stage()), O);
        __syncwarp();
        if (lane_index() == 0) output_full[score_ring.stage()].arrive();
      }
      ring.advance();
      score_ring.advance();
      state_ring.advance();
    }
  } else if (group == 2) {
    decrease_registers<72>();
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread < 32) {
      auto ring = Ring<kPipelineDepth>::producer();
      for (int t = begin; t < end; t += kChunk) {
        ring.wait(empty);
        fence_async_proxy();  // V has been read by ldmatrix
        load_rows_of_sequence(tiles_of(ring.stage()), maps, full[ring.stage()], last_full, end - t, h, t, first_column);
        ring.advance();
      }
    } else if (thread < 64) {
      auto ring = Ring<kPipelineDepth>::producer();
      for_each_chunk_with_g(a, 0, h, begin, kChunk, (end - begin - 1) / kChunk + 1, end, [&](int, float2 g) {
        const ChunkSums sums(g);
        ring.wait(empty);
        decays_of(ring.stage()).store(sums, a.scale);
        __syncwarp();
        if (lane_index() == 0) full[ring.stage()].arrive();
        ring.advance();
      });
    } else {
      auto output_ring = Ring<kDepth>::consumer();
      for (int t = begin; t < end; t += kChunk) {
        output_ring.wait(output_full);
        store_tile_by<kStoreThreads>(thread - kWarpgroup + kStoreThreads, a.o.row(0, h, t) + first_column, a.o.stride_l,
                                     end - t, columns, panel(output_ring.stage()), [&] {
                                       __syncwarp();
                                       if (lane_index() == 0) output_empty[output_ring.stage()].arrive();
                                     });
        output_ring.advance();
      }
    }
  } else {
    increase_registers<208>();
    WarpgroupState<Shape::kDk> S;
    const ConstRows start = start_of(a, part, plan);
    load_group_state<Shape::kDk>(S, start.data, start.stride, a.Dk, columns);
    auto ring = Ring<kPipelineDepth>::consumer();  // one chunk ahead of `read` during a chunk
    auto read = ring;
    auto output_ring = Ring<kDepth>::producer();  // the state's part of the outputs
    RoundedState<Shape::kDk> s;
    StateFactors now, next = {};
    ring.wait(full);
    load_state_factors(now, tiles_of(ring.stage()).V, decays_of(ring.stage()));
    for (int t = begin; t < end; t += kChunk) {
      const ChunkTiles<Shape> tiles = tiles_of(read.stage());
      WarpgroupOutput from_state;
      round_state<Shape::kDk>(s, S);
      decay_state(S, now.whole);
      wgmma_fence(from_state, s, S, now.v);
      start_output_from_state<Shape::kDk>(from_state, s, tiles.Q);
      wgmma_commit();
      start_state_update<Shape::kDk>(S, now.v, tiles.K);
      wgmma_commit();
      output_ring.wait(state_empty);
      wgmma_wait<1>(from_state, s);
      from_state_of(output_ring.stage()).put(from_state);
      __syncwarp();
      if (lane_index() == 0) state_full[output_ring.stage()].arrive();
      output_ring.advance();
      ring.advance();
      if (t + kChunk < end) {
        ring.wait(full);
        load_state_factors(next, tiles_of(ring.stage()).V, decays_of(ring.stage()));
      }
      wgmma_wait<0>(S, now.v);
      __syncwarp();
      if (lane_index() == 0) empty[read.stage()].arrive();
      read.advance();
      now = next;
    }
    if (part.entry >= plan.states && a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(part.sequence, h, 0) + first_column, S, a.final_state.stride_l,
                                    a.Dk, columns);
    }
  }
}

template <class Shape>
void launch_packed(const PackedBf16Arguments& p, PackedPlan plan) {
  const Bf16Arguments& a = p.all;
  const Extents extents = extents_of(a);
  const ChunkMaps maps = chunk_maps(a);
  plan.segments = list_segments(p.cu_seqlens, plan);
  if (plan.states > 0) {
    const auto count = std::size_t(plan.states) * std::size_t(a.H);
    float* states = workspace<float>("simple_gla: states", count * std::size_t(a.Dk) * std::size_t(a.Dv));
    float* decays = workspace<float>("simple_gla: decays", count);
    launch(packed_states_kernel<Shape>,
           {packed_grid<Shape>(extents, plan.states), kStateBlock, kSharedBytesForState<Shape>}, a, maps, plan, states,
           decays);
    carry_sequences(a.initial_state, plan, extents, SegmentDecay{decays}, states);
    plan.starts = states;
  }
  launch(packed_walk_kernel<Shape>, {packed_grid<Shape>(extents, plan.entries()), kBlock, kSharedBytes<Shape>}, a, maps,
         plan);
}

}  // namespace

void hopper_packed(const PackedBf16Arguments& p, PackedPlan plan) {
  p.all.Dk <= 64 ? launch_packed<PanelShape<64, 64>>(p, plan) : launch_packed<PanelShape<128, 64>>(p, plan);
}

}  // namespace tutorial::simple_gla
