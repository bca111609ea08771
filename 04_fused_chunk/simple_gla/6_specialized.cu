/// @file
/// `specialized`: chapter 02's kernel for Hopper with three decays, and who computes them.
///
/// Idea: the state's warpgroup is the one that all others wait for. Of the three decays it keeps what it cannot give
/// away: one multiplication of each element of S and O^T, under products that run. The exponentials, the decays of the
/// scores, and V on its way into the state belong to the chunk alone. The two warpgroups with the scores make them, and
/// have the time of two chunks for one.
///
///     scores   b_t by warp_prefix_sum(), each warp for itself    |  under Q K^T: V~ = diag(2^(b_e - b)) V, factors
///              | P_ti = scale (q_t . k_i) 2^(b_t - b_i)
///     state    round S, S = 2^b_e S under the outputs' products  |  O = scale 2^b (S^T Q^T) + V^T P^T, put together
///
/// Grows out of: 02_chunkwise/linear_attention/12_balanced_roles.cu
/// Improves on: `sequence_parallel` has these decays in every warp, beside products by mma.sync.
/// Unchanged: roles, rings and the queue of products of `queued_products`, where they are explained.
/// Equation: that of `fused`.
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16; g [B, H, L], S_0 and final_state [B, H, Dk, Dv] fp32. V~ and P are
/// panels of bf16 in shared memory. The factors scale 2^b_t and 2^b_e are 65 numbers in fp32 beside each set of tiles.
/// Thread mapping: as `queued_products`. A warp with scores reads g of its next chunk, two chunks ahead, from global
/// memory, and keeps its own copy of b in shared memory. It makes 16 rows of V~ and of P.
/// Who waits for whom: V~ of chunk n + 1 is wanted earlier than P of chunk n + 1, under the outputs of chunk n. So they
/// have barriers of their own. `values_full` says that V~ and the factors are there, and with them the chunk's tiles.
/// `values_empty` says that the state has been updated by V~. It also protects the factors: they are written again
/// four chunks later, after a wait for the update of the chunk in between, which comes behind the outputs.
/// Two accumulators: S^T Q^T and V^T P^T have arrays of their own. In one array the decays would have to be multiplied
/// between the two products, with a wait there.
/// Registers: S 64, two rounded states of 32, two accumulators of 32: 192 of the state's 240.
/// Resources: four times Q, K, V and factors, two P, V~ and O, b for eight warps: 211 KB of shared memory at Dk = 128.
/// Work: that of `queued_products`; and for each chunk and tile of Dv 32 + 4 + 1 exponentials per thread with scores.
/// Bytes: q, k and g once for each tile of Dv, g by four warps each, v and o once.
/// Bound by: as `queued_products`.
/// Requires: compute capability 9.0, Dk <= 128, Dk and Dv multiples of 16, tensors that can be mapped. Gates as `fused`.
/// Weakness: few heads leave multiprocessors idle, as they do with `fused`. `dispatch` cuts the sequence into segments.
/// Sources: as chapter 02's `specialized`.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/launch_plan.hpp"
#include "04_fused_chunk/simple_gla/warpgroup_gate.cuh"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::simple_gla {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 4;       // chunks in shared memory: even, so that each is always read by the same scores
constexpr int kDepth = 2;               // P, O and V~ in shared memory
constexpr int kBlock = 4 * kWarpgroup;  // threads
constexpr int kStoreThreads = kWarpgroup - 32;  // of them

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth*(ChunkTiles<Shape>::kBytes + ChunkDecays::kBytes) +
                                     3 * kDepth* PanelTile<64>::kPanelBytes;

/// Grid (tiles of 64 columns of Dv of all segments, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlock, 1)
    specialized_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps, LaunchPlan plan) {
  const BlockPart<Shape> part(extents_of(a), plan.length);
  const int b = part.b, h = part.h, first_column = part.first_column, columns = part.columns, end = part.end;
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth];
  __shared__ Barrier scores_full[kDepth], scores_empty[kDepth], output_full[kDepth], output_empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return ChunkTiles<Shape>(memory + stage * ChunkTiles<Shape>::kBytes); };
  const auto panel = [&](int number) {
    return PanelTile<64>{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * ChunkTiles<Shape>::kBytes +
                                                          number * int(PanelTile<64>::kPanelBytes))};
  };
  const auto decays_of = [&](int stage) {
    return ChunkDecays{reinterpret_cast<float*>(panel(3 * kDepth).data) + stage * int(ChunkDecays::kBytes / 4)};
  };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(2);       // the bytes of the tiles, and the decays
    for (Barrier& barrier : empty) barrier.init(4 + 4);  // the warps with the chunk's scores, and those of the state
    for (Barrier& barrier : scores_full) barrier.init(4);
    for (Barrier& barrier : scores_empty) barrier.init(4);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(3);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group < 2) {
    decrease_registers<112>();
    auto ring = Ring<kPipelineDepth>::consumer();
    auto score_ring = Ring<kDepth>::producer();
    for (int t = part.begin; t < end; t += kChunk) {
      if ((t - part.begin) / kChunk % 2 == group) {
        const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
        const ChunkDecays decays = decays_of(ring.stage());
        WarpgroupScores scores;
        ring.wait(full);
        wgmma_fence(scores);
        start_scores(scores, tiles.Q, tiles.K);
        wgmma_commit();
        const DecayedValues values(tiles.V, decays);
        wgmma_wait<0>(scores);
        const WarpgroupDecayedScores P(scores, decays, a.scale);
        __syncwarp();
        if (lane_index() == 0) empty[ring.stage()].arrive();
        score_ring.wait(scores_empty);
        values.store(panel(2 * kDepth + score_ring.stage()));
        P.store(panel(score_ring.stage()));
        fence_async_proxy();
        __syncwarp();
        if (lane_index() == 0) scores_full[score_ring.stage()].arrive();
      }
      ring.advance();
      score_ring.advance();
    }
  } else if (group == 2) {
    decrease_registers<72>();
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread < 32) {
      float2 g = load_g(a, b, h, part.begin, end);
      auto ring = Ring<kPipelineDepth>::producer();
      for (int t = part.begin; t < end; t += kChunk) {
        ring.wait(empty);
        if (thread == 0) {
          full[ring.stage()].arrive_expect(ChunkTiles<Shape>::kBytes);
          load_chunk(tiles_of(ring.stage()), maps, full[ring.stage()], b, h, t, first_column);
        }
        decays_of(ring.stage()).store(ChunkSums(g), a.scale);
        g = load_g(a, b, h, t + kChunk, end);
        __syncwarp();
        if (thread == 0) full[ring.stage()].arrive();
        ring.advance();
      }
    } else {
      auto output_ring = Ring<kDepth>::consumer();
      for (int t = part.begin; t < end; t += kChunk) {
        output_ring.wait(output_full);
        store_tile_by<kStoreThreads>(thread - 32, a.o.row(b, h, t) + first_column, a.o.stride_l, end - t, columns,
                                     panel(kDepth + output_ring.stage()), [&] {
                                       __syncwarp();
                                       if (lane_index() == 0) output_empty[output_ring.stage()].arrive();
                                     });
        output_ring.advance();
      }
    }
  } else {
    increase_registers<216>();
    WarpgroupState<Shape::kDk> S;
    const auto start = part.start(a.initial_state, plan, extents_of(a));
    load_group_state<Shape::kDk>(S, start.data, start.stride_row, a.Dk, columns);
    auto ring = Ring<kPipelineDepth>::consumer();
    auto score_ring = Ring<kDepth>::consumer();
    auto output_ring = Ring<kDepth>::producer();
    for (int t = part.begin; t < end; t += kChunk) {
      const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
      const ChunkDecays decays = decays_of(ring.stage());
      WarpgroupOutput from_state, O;
      RoundedState<Shape::kDk> s;
      round_state<Shape::kDk>(s, S);
      score_ring.wait(scores_full);  // the scores' warps have waited for `full` before
      wgmma_fence(from_state, O, s);
      start_output_from_state<Shape::kDk>(from_state, s, tiles.Q);
      start_output_from_scores(O, tiles.V, panel(score_ring.stage()), false);
      wgmma_commit();
      wgmma_wait<1>(S);  // passes at once; the compiler cannot see that S has been waited for before the loop's turn
      decay_state(S, decays.whole());
      wgmma_fence(S);
      start_state_update<Shape::kDk>(S, panel(2 * kDepth + score_ring.stage()), tiles.K);
      wgmma_commit();
      wgmma_wait<1>(from_state, O, s);
      add_positions(O, from_state, [=](int row) { return decays.from_start(row); });
      output_ring.wait(output_empty);
      put_output(panel(kDepth + output_ring.stage()), O, 1.0f);
      __syncwarp();
      if (lane_index() == 0) output_full[output_ring.stage()].arrive();
      output_ring.advance();
      wgmma_wait<0>(S);
      if (lane_index() == 0) {
        empty[ring.stage()].arrive();
        scores_empty[score_ring.stage()].arrive();
      }
      ring.advance();
      score_ring.advance();
    }
    if (end == a.L && a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
}

}  // namespace

void walk_on_warpgroups(const Bf16Arguments& a, const LaunchPlan& plan) {
  const auto start = [&]<class Shape>(Shape) {
    launch(specialized_kernel<Shape>, {grid_of<Shape>(extents_of(a), plan.segments), kBlock, kSharedBytes<Shape>}, a,
           chunk_maps(a), plan);
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

void specialized(const Bf16Arguments& a) {
  walk_on_warpgroups(a, make_launch_plan(a.L, 64, 1));
}

}  // namespace tutorial::simple_gla
