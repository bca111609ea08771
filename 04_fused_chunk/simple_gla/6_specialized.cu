/// @file
/// `specialized`: chapter 02's kernel for Hopper with three decays, and which warps compute them.
///
/// Idea: all others wait for the warpgroup of the state. Of the three decays it keeps only what no other warps can
/// compute: one multiplication of each element of S and of O^T, while products run. Everything else depends only on the
/// chunk. The warp that loads has 31 idle lanes, and g of a chunk is 64 numbers: this warp adds them up and leaves all
/// powers that depend on one position beside the tiles. The two warpgroups of the scores take turns, so each has the
/// time of two chunks for one. They multiply the scores, and V on its way into the state, by their decays.
///
///     loads    | Q, K, V, g of n + 3; b_t, 2^b_t, 2^(b_e - b_t) ........................................ |
///     scores   | n + 1: Q K^T, under it V~ = diag(2^(b_e - b)) V | P_ti = scale (q_t . k_i) 2^(b_t - b_i) |
///     state    | n: S^T Q^T | V^T P^T, under it S = 2^b_e S | V~^T K of n + 1, under it O of n ........... |
///
/// Grows out of: 02_chunkwise/linear_attention/13_balanced_roles.cu
/// Improves on: `sequence_parallel` computes these decays in every warp, beside products by mma.sync.
/// Unchanged: the roles of `balanced_roles`. As in `queued_products`, the state is updated for the next chunk while the
/// outputs of this one are computed. The kernel also walks segments for `dispatch`, as `sequence_parallel` does.
/// Equation: that of `fused`.
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16; g [B, H, L], S_0 and final_state [B, H, Dk, Dv] fp32. V~ and P
/// are panels of bf16 in shared memory. Beside each set of tiles lie its decays, 257 numbers in fp32
/// (warpgroup_gate.cuh).
/// Thread mapping: as `balanced_roles`. Each lane of the loading warp has two positions, and g of the next four chunks
/// is in flight. Each warp of the scores computes 16 rows of P and of V~.
/// Synchronization: a phase of `full` ends when the bytes of the tiles have arrived and the loading warp has written
/// the decays. V~ of chunk n + 1 is needed before P of chunk n + 1, so each of the two has its own barriers: those of
/// V~ are `values_full` and `values_empty`.
/// Two arrays of sums: S^T Q^T and V^T P^T have one each. With a single array, the threads would have to wait between
/// the two products to multiply the sums by 2^b. There are no registers left for the second rounded copy of S that
/// `queued_products` has: the compiler would serialise the products. So S is rounded after S^T Q^T has read the
/// previous copy, while V^T P^T runs.
/// Registers: a thread of the state has 64 for S, 32 for its rounded copy, and two arrays of sums of 32 each.
/// Resources: four times Q, K, V and decays, two P, V~ and O: 212 KB of shared memory at Dk = 128.
/// Work: that of `balanced_roles`; and per chunk and tile of Dv, 6 or 7 exponentials per lane of the loading warp and 8
/// to 14 per thread of the scores: one per score in the blocks of 16 x 16 on the diagonal, and two per block to their
/// left.
/// Bytes: q, k and g once per tile of Dv, v and o once.
/// Bound by: the instructions of the warpgroups of the scores, for which the state waits. From about 64 heads of Dv =
/// 128 on, the memory's bandwidth is almost reached.
/// Requires: compute capability 9.0, Dk <= 128, Dk and Dv multiples of 16, tensors that a tensor map can describe.
/// Gates as in `fused`.
/// Weakness: 32 heads of Dv = 128 give only 64 blocks, however long the sequence is. `dispatch` cuts the sequence into
/// segments.
/// Sources: as chapter 02's `specialized`.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/chunk_loads.cuh"
#include "04_fused_chunk/simple_gla/joint_loads.cuh"
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

constexpr int kPipelineDepth = 4;               // chunks in shared memory
constexpr int kDepth = 2;                       // P, O and V~ in shared memory
constexpr int kBlock = 4 * kWarpgroup;          // threads
constexpr int kStoreThreads = kWarpgroup - 32;  // of them

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* kChunkBytes<Shape> + 3 * kDepth* PanelTile<64>::kPanelBytes;

/// Grid (tiles of 64 columns of Dv of all segments, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlock, 1)
    walk_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps, LaunchPlan plan) {
  const BlockPart<Shape> part(extents_of(a), plan.length);
  const int b = part.b, h = part.h, first_column = part.first_column, columns = part.columns, end = part.end;
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth];
  __shared__ Barrier scores_full[kDepth], scores_empty[kDepth], output_full[kDepth], output_empty[kDepth];
  __shared__ Barrier values_full[kDepth], values_empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return ChunkTiles<Shape>(memory + stage * ChunkTiles<Shape>::kBytes); };
  const auto panel = [&](int number) {
    return PanelTile<64>{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * ChunkTiles<Shape>::kBytes +
                                                          number * int(PanelTile<64>::kPanelBytes))};
  };
  const auto decays_of = [&](int stage) { return ChunkDecays(panel(3 * kDepth).data, stage); };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(2);       // one for the bytes, one for the decays
    for (Barrier& barrier : empty) barrier.init(4 + 4);  // the warps of the chunk's scores, and those of the state
    for (int i = 0; i < kDepth; ++i) scores_full[i].init(4), scores_empty[i].init(4);
    for (int i = 0; i < kDepth; ++i) values_full[i].init(4), values_empty[i].init(4);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(3);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group < 2) {
    decrease_registers<96>();
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
        score_ring.wait(values_empty);
        store_decayed_values(panel(2 * kDepth + score_ring.stage()), tiles.V, decays);
        fence_async_proxy();
        __syncwarp();
        if (lane_index() == 0) values_full[score_ring.stage()].arrive();
        wgmma_wait<0>(scores);
        score_ring.wait(scores_empty);
        store_decayed_scores(panel(kDepth + score_ring.stage()), scores, decays, a.scale);
        fence_async_proxy();
        __syncwarp();
        if (lane_index() == 0) empty[ring.stage()].arrive(), scores_full[score_ring.stage()].arrive();
      }
      ring.advance();
      score_ring.advance();
    }
  } else if (group == 2) {
    decrease_registers<72>();
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread < 32) {
      request_with_decays(full, empty, tiles_of, maps, a, chunks_of(part),
                          [&](int stage, const ChunkSums& sums) { decays_of(stage).store(sums, a.scale); });
    } else if (thread >= 32) {
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
    increase_registers<240>();
    WarpgroupState<Shape::kDk> S;
    const auto start = part.start(a.initial_state, plan, extents_of(a));
    load_group_state<Shape::kDk>(S, start.data, start.stride, a.Dk, columns);
    auto ring = Ring<kPipelineDepth>::consumer();  // one chunk ahead of `read`
    auto read = ring;
    auto value_ring = Ring<kDepth>::consumer(), score_ring = value_ring;  // likewise
    auto output_ring = Ring<kDepth>::producer();
    RoundedState<Shape::kDk> s;

    WarpgroupOutput from_state, O;
    const auto start_update = [&] {
      const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
      value_ring.wait(values_full);  // its warps have waited for `full` before
      decay_state(S, decays_of(ring.stage()).whole());
      ring.advance();
      wgmma_fence(S);
      start_state_update<Shape::kDk>(S, panel(2 * kDepth + value_ring.stage()), tiles.K);
      wgmma_commit();
    };
    const auto start_outputs = [&] {
      const ChunkTiles<Shape> tiles = tiles_of(read.stage());
      wgmma_fence(from_state, s);
      start_output_from_state<Shape::kDk>(from_state, s, tiles.Q);
      wgmma_commit();
      score_ring.wait(scores_full);
      wgmma_fence(O);
      start_output_from_scores(O, tiles.V, panel(kDepth + score_ring.stage()), false);
      wgmma_commit();
    };
    // Releases the factors of the outputs, and passes the outputs on.
    const auto finish_outputs = [&] {
      if (lane_index() == 0) scores_empty[score_ring.stage()].arrive();
      score_ring.advance();
      add_positions(O, from_state, [decays = decays_of(read.stage())](int t) { return decays.pair_from_start(t); });
      output_ring.wait(output_empty);
      put_output(panel(output_ring.stage()), O, 1.0f);
      __syncwarp();
      if (lane_index() == 0) empty[read.stage()].arrive();
      if (lane_index() == 0) output_full[output_ring.stage()].arrive();
      read.advance();
      output_ring.advance();
    };

    round_state<Shape::kDk>(s, S);
    start_update();
    wgmma_wait<0>(S);
    if (lane_index() == 0) values_empty[value_ring.stage()].arrive();
    value_ring.advance();
    // Computes the outputs of a chunk from s, the rounded state before it, and then s and S of the next chunk.
    for (int t = part.begin; t + kChunk < end; t += kChunk) {
      start_outputs();
      wgmma_wait<1>(from_state, s);
      round_state<Shape::kDk>(s, S);
      start_update();
      wgmma_wait<1>(O);
      finish_outputs();
      wgmma_wait<0>(S);
      if (lane_index() == 0) values_empty[value_ring.stage()].arrive();
      value_ring.advance();
    }
    start_outputs();
    wgmma_wait<0>(from_state, O, s);
    finish_outputs();
    if (end == a.L && a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
}

}  // namespace

void walk_on_warpgroups(const Bf16Arguments& a, const LaunchPlan& plan) {
  const auto start = [&]<class Shape>(Shape) {
    launch(walk_kernel<Shape>, launch_by_segments<Shape>(extents_of(a), plan, kBlock, kSharedBytes<Shape>), a,
           chunk_maps(a), plan);
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

}  // namespace tutorial::simple_gla
