/// @file
/// `bounded_start`: segments of the sequence at once, and none of them waits for the state of another one.
///
/// Idea: a segment needs the state of the positions before it. If their gates multiply to next to nothing, this state is
/// what the last few chunks have put into it. So a block walks these chunks first, from a state of zeros: the warm-up,
/// which computes no outputs. Each block finds out from the gates how many chunks it needs. It is as many as leave at
/// most 2^-24 of the state before them (common/tile/warm_up.cuh has the derivation). Where gates forget nothing, the
/// warm-up goes back to position 0, where the state is known. So the result is right for all gates.
///
///     block of segment m    | look at g | warm-up: K, V -> S | walk: S, Q, K, V -> O, S |
///     positions             |           s ...                m length ...               (m + 1) length
///
/// Grows out of: 5_register_scores.cu
/// Improves on: `register_scores` has one block per 64 columns of a head: 16 of 132 multiprocessors work for 8 heads.
/// Unchanged: the walk.
/// Equation: that of `fused`, with S_s-1 = 0 at the start s of a warm-up unless s = 0.
/// Shapes: as `register_scores`.
/// Thread mapping: as `register_scores`, for each segment. First a warp adds up g from the segment's first position
/// down, eight chunks at a time, until the sum of the logarithms is at most -24. In the warm-up the scores' warpgroups
/// only hand on the tiles.
/// Resources: as `register_scores`.
/// Work: that of `register_scores`, and half of a chunk's for each chunk of a warm-up. With gates of logsigmoid(x), x
/// normal, a warm-up is one chunk; with logsigmoid(x + 5) it is about 24.
/// Bytes: those of `register_scores`, and k, v and g of the warm-ups. How many that is depends on g.
/// Bound by: as `register_scores`, with as many blocks as there are multiprocessors.
/// Requires: as `register_scores`.
/// Weakness: a head that forgets nothing is walked from position 0 by each of its blocks. `dispatch` then computes the
/// states of segments in kernels before this one, and leaves them in memory.
/// Sources: FlashQLA, whose gated delta rule starts segments so, where less than e^-10 of the state would be left.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/bounded_start.hpp"
#include "04_fused_chunk/simple_gla/chunk_decays.cuh"
#include "04_fused_chunk/simple_gla/decayed_values.cuh"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warm_up.cuh"
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

/// Only blocks without a warm-up need what the kernel before computes. Grid (tiles of 64 columns of Dv, H, B x segments).
/// @param limit chunks of a warm-up at most; a segment that needs more starts from the plan's `starts`
template <class Shape>
__global__ void __launch_bounds__(kBlock, 1)
    bounded_start_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps, LaunchPlan plan, int limit) {
  const BlockPart<Shape> part(extents_of(a), plan.length);
  const int b = part.b, h = part.h, first_column = part.first_column, columns = part.columns, end = part.end;
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth];
  __shared__ int start;
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
    for (Barrier& barrier : full) barrier.init(2);       // one for the bytes, one for the decays
    for (Barrier& barrier : empty) barrier.init(4 + 4);  // the warps of the chunk's scores, and those of the state
    for (int i = 0; i < kDepth; ++i) state_full[i].init(4), state_empty[i].init(4);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(2);
    fence_barrier_init();
  }
  if (warp_index() == 1) {
    const auto g = [&](int t) { return load_global(a.g.row(b, h, t)); };
    const int found = warm_up_start(part.begin, limit, g);
    if (lane_index() == 0) start = found;
  }
  __syncthreads();
  const int begin = start == kNoWarmUp ? part.begin : start;  // the first position that the block reads

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group < 2) {
    decrease_registers<112>();
    auto ring = Ring<kPipelineDepth>::consumer();
    auto score_ring = Ring<kDepth>::producer();  // of O, which the scores become
    auto state_ring = Ring<kDepth>::consumer();
    for (int t = begin; t < part.begin; t += kChunk, ring.advance()) {  // a wait must not fall two phases behind
      if (t / kChunk % 2 != group) continue;
      if (ring.wait(full); lane_index() == 0) empty[ring.stage()].arrive();
    }
    for (int t = part.begin; t < end; t += kChunk) {
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
    if (thread == 0) {
      auto ring = Ring<kPipelineDepth>::producer();
      for (int t = begin; t < end; t += kChunk) {
        const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
        Barrier& barrier = full[ring.stage()];
        ring.wait(empty);
        fence_async_proxy();  // V has been read by ldmatrix
        if (t < part.begin) {
          barrier.arrive_expect(StateTiles<Shape>::kBytes);
          load_chunk(StateTiles<Shape>(tiles.K.data), maps, barrier, b, h, t, first_column);
        } else {
          barrier.arrive_expect(ChunkTiles<Shape>::kBytes);
          load_chunk(tiles, maps, barrier, b, h, t, first_column);
        }
        ring.advance();
      }
    } else if (thread >= 32 && thread < 64) {
      auto ring = Ring<kPipelineDepth>::producer();
      for_each_chunk_with_g(a, b, h, begin, kChunk, (end - begin - 1) / kChunk + 1, end, [&](int, float2 g) {
        const ChunkSums sums(g);
        ring.wait(empty);
        decays_of(ring.stage()).store(sums, a.scale);
        __syncwarp();
        if (lane_index() == 0) full[ring.stage()].arrive();
        ring.advance();
      });
    } else if (thread >= 64) {
      auto output_ring = Ring<kDepth>::consumer();
      for (int t = part.begin; t < end; t += kChunk) {
        output_ring.wait(output_full);
        store_tile_by<kStoreThreads>(thread - kWarpgroup + kStoreThreads, a.o.row(b, h, t) + first_column, a.o.stride_l,
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
    ConstRows first = {};  // zeros
    if (start == kNoWarmUp) {
      first = part.start(a.initial_state, plan, extents_of(a));
    } else if (start == 0 && a.initial_state.data) {
      first = {a.initial_state.row(b, h, 0) + first_column, a.initial_state.stride_l};
    }
    load_group_state<Shape::kDk>(S, first.data, first.stride, a.Dk, columns);
    auto ring = Ring<kPipelineDepth>::consumer();  // one chunk ahead of `read` during a chunk
    auto read = ring;
    auto output_ring = Ring<kDepth>::producer();  // the state's part of the outputs
    RoundedState<Shape::kDk> s;
    StateFactors now, next = {};
    ring.wait(full);
    load_state_factors(now, tiles_of(ring.stage()).V, decays_of(ring.stage()));
    const auto finish_chunk = [&](int t) {
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
    };
    for (int t = begin; t < part.begin; t += kChunk) {
      decay_state(S, now.whole);
      wgmma_fence(S, now.v);
      start_state_update<Shape::kDk>(S, now.v, tiles_of(read.stage()).K);
      wgmma_commit();
      finish_chunk(t);
    }
    for (int t = part.begin; t < end; t += kChunk) {
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
      finish_chunk(t);
    }
    wait_for_previous_kernel();  // so that this kernel does not end before it
    if (end == a.L && a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
}

}  // namespace

void walk_with_bounded_starts(const Bf16Arguments& a, const LaunchPlan& plan, int limit) {
  const auto start = [&]<class Shape>(Shape) {
    launch(bounded_start_kernel<Shape>, launch_by_segments<Shape>(extents_of(a), plan, kBlock, kSharedBytes<Shape>), a,
           chunk_maps(a), plan, limit);
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

void bounded_start(const Bf16Arguments& a) {
  const LaunchPlan plan = bounded_start_plan(a);
  walk_with_bounded_starts(a, plan, a.L / kChunk);
}

}  // namespace tutorial::simple_gla
