/// @file
/// Stage 13, `balanced_roles`: the warpgroup that holds the state does nothing that another warpgroup can do.
///
/// Idea: a profile of `specialized` with 32 heads shows where a chunk's 1600 clocks go. The products of the state's
/// warpgroup take 672: 288 for S^T Q^T, 128 for V^T P^T and 256 for V^T K. Its warps are busy for as long, because
/// only two or three products fit into the queue of the tensor core. Then they assemble O (190 clocks), and fence it
/// and meet at a barrier (320). Afterwards they wait for the next tiles and scores, and round S (320). We could not
/// assign the remaining 100 or so. The warpgroup of the scores spends half of its time on the fence after its stores.
/// So two things change:
///
///   - The state's warps put O into shared memory and go on. Three warps that were idle store it to device memory.
///   - Two warpgroups compute scores, one for even chunks and one for odd ones. Each may take twice as long.
///
///     state    | n: O, S, put O  | n + 1: O, S, put O |
///     stores                     | O of n             |        outputs: ring of 2, `output_full` and `output_empty`
///     scores   | n + 1 (even) ...................... |
///                     | n + 2 (odd) ........................ |
///
/// Grows out of: 12_specialized.cu
/// Improves on: `specialized` has fences and barriers between the products with its state.
/// Unchanged: products, their order, precision, bytes.
/// Thread mapping: block (x, h, b) takes 64 columns of Dv. Warpgroups 0 and 1 compute scores. One thread of warpgroup 2
/// loads, and its last three warps store. Warpgroup 3 holds the state.
/// Outputs: each storing warp first reads all of its part of a tile and releases the tile. Then it writes to global
/// memory. Ordinary loads and stores need no fence.
/// Resources: four sets of Q, K and V, two P and two O: 192 KB of shared memory at Dk = 128. The threads of the four
/// warpgroups have 96, 96, 72 and 240 registers: 96 + 96 + 72 + 240 <= 4 x 128. The ring's length is even, so that the
/// same one of the two scoring warpgroups always reads a given set of tiles. With three sets a warpgroup would see only
/// every second phase of a set. Those phases have the same parity, so its wait could take the end of an older one for
/// the end of the one that it waits for.
/// Bound by: as `specialized`.
/// Requires: as `warpgroup_mma`.
/// Weakness: between two chunks the tensor core still has nothing to do for the state. `queued_products` closes this
/// gap.
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

constexpr int kPipelineDepth = 4;               // chunks in shared memory; even, for the reason under Resources
constexpr int kDepth = 2;                       // P and O in shared memory
constexpr int kBlock = 4 * kWarpgroup;          // threads
constexpr int kStoreThreads = kWarpgroup - 32;  // of them

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* ChunkTiles<Shape>::kBytes + 2 * kDepth* PanelTile<64>::kPanelBytes;

/// Grid (tiles of 64 columns of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlock, 1)
    balanced_roles_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column);
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth], scores_full[kDepth], scores_empty[kDepth];
  __shared__ Barrier output_full[kDepth], output_empty[kDepth];
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
    auto ring = Ring<kPipelineDepth>::consumer();
    auto score_ring = Ring<kDepth>::consumer();
    auto output_ring = Ring<kDepth>::producer();
    for (int t = 0; t < a.L; t += kChunk) {
      const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
      WarpgroupOutput O;
      RoundedState<Shape::kDk> s;
      round_state<Shape::kDk>(s, S);
      score_ring.wait(scores_full);  // the scores' warps have waited for `full` before
      wgmma_fence(O, s, S);
      start_output_from_state<Shape::kDk>(O, s, tiles.Q);
      start_output_from_scores(O, tiles.V, panel(score_ring.stage()));
      wgmma_commit();
      start_state_update<Shape::kDk>(S, tiles.V, tiles.K);
      wgmma_commit();
      wgmma_wait<1>(O, s);
      if (lane_index() == 0) scores_empty[score_ring.stage()].arrive();
      score_ring.advance();
      output_ring.wait(output_empty);
      put_output(panel(kDepth + output_ring.stage()), O, a.scale);
      __syncwarp();
      if (lane_index() == 0) output_full[output_ring.stage()].arrive();
      output_ring.advance();
      wgmma_wait<0>(S);
      if (lane_index() == 0) empty[ring.stage()].arrive();
      ring.advance();
    }
    if (a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
}

}  // namespace

void balanced_roles(const Bf16Arguments& a) {
  const auto start = [&]<class Shape>(Shape) {
    launch(balanced_roles_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kBlock, kSharedBytes<Shape>}, a,
           chunk_maps(a));
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

}  // namespace tutorial::linear_attention
