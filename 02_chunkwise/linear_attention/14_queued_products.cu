/// @file
/// Stage 14, `queued_products`: while a product runs, the next one is in the queue.
///
/// Idea: products of a warpgroup run in the order in which they are started. In `balanced_roles` the products of a
/// chunk are started together, for O and for S; after they have ended, S is rounded, and then the next products are
/// started. In between the tensor core has nothing to do for this warpgroup. But the product that adds chunk n + 1 to S
/// needs only that chunk's K and V, and that S, as chunk n left it, has been rounded. So this product is queued behind
/// the outputs of chunk n, and S is rounded while these outputs are computed. While the queued product runs, O is
/// assembled. The waits at barriers overlap with products, too.
///
///     tensor core | O of n ........ | S of n + 1 |  | O of n + 1 .... | S of n + 2     |
///     state       | ....... round S | put O of n |  | ....... round S | put O of n + 1 |
///
/// One gap per chunk is left: O of n + 1 is not queued behind S of n + 1. It needs only P and the copy of S that was
/// rounded after chunk n. But the loop waits for S of n + 1 first, because the compiler does not carry a product that
/// runs around a loop.
/// Grows out of: 13_balanced_roles.cu
/// Improves on: `balanced_roles` leaves the tensor core without work between two chunks.
/// Unchanged: roles, products, precision, bytes.
/// Registers: s is the rounded copy of S. The product for O of chunk n reads s while s of chunk n + 1 is computed. So
/// there are two such copies, and the loop is written out for both: moving one to the other would touch registers that
/// a product is reading.
/// Resources: as `balanced_roles`. Two chunks are in use at a time.
/// Bound by: the memory's bandwidth from about 64 heads of Dv = 128 on. With fewer heads, the time that a block takes
/// for a chunk, 1400 clocks, of which its products need 930.
/// Requires: as `warpgroup_mma`.
/// Weakness: 32 heads of Dv = 128 are only 64 blocks, however long the sequence is. `dispatch` cuts the sequence into
/// segments. And every block of 64 columns of Dv loads Q and K and computes the scores again. In `cluster` two blocks
/// share this work.
/// Sources: as `specialized`.

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention.hpp"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/grid.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/wgmma_products.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 4;               // chunks in shared memory; even, as in `balanced_roles`
constexpr int kDepth = 2;                       // P and O in shared memory
constexpr int kBlock = 4 * kWarpgroup;          // threads
constexpr int kStoreThreads = kWarpgroup - 32;  // of them

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* ChunkTiles<Shape>::kBytes + 2 * kDepth* PanelTile<64>::kPanelBytes;

/// Grid (tiles of 64 columns of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlock, 1)
    queued_products_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column);
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth];
  __shared__ Barrier scores_full[kDepth], scores_empty[kDepth], output_full[kDepth], output_empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return ChunkTiles<Shape>(memory + stage * ChunkTiles<Shape>::kBytes); };
  const auto panel = [&](int number) {
    return PanelTile<64>{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * ChunkTiles<Shape>::kBytes +
                                                          number * int(PanelTile<64>::kPanelBytes))};
  };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
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
    decrease_registers<96>();
    auto ring = Ring<kPipelineDepth>::consumer();
    auto score_ring = Ring<kDepth>::producer();
    for (int t = 0; t < a.L; t += kChunk) {
      if (t / kChunk % 2 == group) {
        const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
        WarpgroupScores scores;
        ring.wait(full);
        wgmma_fence(scores);
        start_scores(scores, tiles.Q, tiles.K);
        wgmma_commit();
        wgmma_wait<0>(scores);
        if (lane_index() == 0) empty[ring.stage()].arrive();
        score_ring.wait(scores_empty);
        store_masked_scores(panel(score_ring.stage()), scores);
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
    if (thread == 0) {
      auto ring = Ring<kPipelineDepth>::producer();
      for (int t = 0; t < a.L; t += kChunk) {
        ring.wait(empty);
        full[ring.stage()].arrive_expect(ChunkTiles<Shape>::kBytes);
        load_chunk(tiles_of(ring.stage()), maps, full[ring.stage()], b, h, t, first_column);
        ring.advance();
      }
    } else if (thread >= 32) {
      auto output_ring = Ring<kDepth>::consumer();
      for (int t = 0; t < a.L; t += kChunk) {
        output_ring.wait(output_full);
        store_tile_by<kStoreThreads>(thread - 32, a.o.row(b, h, t) + first_column, a.o.stride_l, a.L - t, columns,
                                     panel(kDepth + output_ring.stage()), [&] {
                                       __syncwarp();
                                       if (lane_index() == 0) output_empty[output_ring.stage()].arrive();
                                     });
        output_ring.advance();
      }
    }
  } else {
    increase_registers<240>();
    WarpgroupState<Shape::kDk> S;
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
    load_group_state<Shape::kDk>(S, start, a.initial_state.stride_l, a.Dk, columns);
    auto ring = Ring<kPipelineDepth>::consumer();  // one chunk ahead of `read`
    auto read = ring;
    auto score_ring = Ring<kDepth>::consumer();
    auto output_ring = Ring<kDepth>::producer();

    WarpgroupOutput O;
    const auto start_update = [&] {
      const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
      ring.wait(full);
      ring.advance();
      wgmma_fence(S);
      start_state_update<Shape::kDk>(S, tiles.V, tiles.K);
      wgmma_commit();
    };
    const auto start_outputs = [&](RoundedState<Shape::kDk>& s) {
      const ChunkTiles<Shape> tiles = tiles_of(read.stage());
      wgmma_fence(O, s);
      start_output_from_state<Shape::kDk>(O, s, tiles.Q);
      start_output_from_scores(O, tiles.V, panel(score_ring.stage()));
      wgmma_commit();
    };
    // Releases the tiles that the outputs were computed from, and hands the outputs to the warps that store them.
    const auto finish_outputs = [&] {
      if (lane_index() == 0) {
        empty[read.stage()].arrive();
        scores_empty[score_ring.stage()].arrive();
      }
      read.advance();
      score_ring.advance();
      output_ring.wait(output_empty);
      put_output(panel(kDepth + output_ring.stage()), O, a.scale);
      __syncwarp();
      if (lane_index() == 0) output_full[output_ring.stage()].arrive();
      output_ring.advance();
    };
    // Computes the outputs of a chunk from s, the rounded state before it. s_after becomes the rounded state after it,
    // and S the state after the next chunk.
    const auto walk = [&](RoundedState<Shape::kDk>& s, RoundedState<Shape::kDk>& s_after) {
      start_outputs(s);                     // O of chunk n, from s, the rounded state before it
      round_state<Shape::kDk>(s_after, S);  // meanwhile
      start_update();                       // queued: S += K^T V of chunk n + 1
      wgmma_wait<1>(O, s);                  // for O; the update may still run
      finish_outputs();                     // puts O together, meanwhile
      score_ring.wait(scores_full);         // P of chunk n + 1
      wgmma_wait<0>(S);                     // for the update
    };

    // Computes the outputs of the last chunk.
    const auto walk_last = [&](RoundedState<Shape::kDk>& s) {
      start_outputs(s);
      wgmma_wait<0>(O, s);
      finish_outputs();
    };

    RoundedState<Shape::kDk> even, odd;
    round_state<Shape::kDk>(even, S);
    start_update();
    score_ring.wait(scores_full);
    wgmma_wait<0>(S);
    int t = 0;
    for (; t + 2 * kChunk < a.L; t += 2 * kChunk) {
      walk(even, odd);
      walk(odd, even);
    }
    if (t + kChunk < a.L) {
      walk(even, odd);
      walk_last(odd);
    } else {
      walk_last(even);
    }
    if (a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
}

}  // namespace

void queued_products(const Bf16Arguments& a) {
  const auto start = [&]<class Shape>(Shape) {
    launch(queued_products_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kBlock, kSharedBytes<Shape>}, a,
           chunk_maps(a));
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

}  // namespace tutorial::linear_attention
