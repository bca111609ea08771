/// @file
/// Stage 12, `queued_products`: while a product runs, the next one is in the queue.
///
/// Idea: a profile of `specialized` with 32 heads says where 1600 clocks go that a chunk takes. Starting 16 products takes a
/// state warpgroup 700, as long as they run: only two or three of them fit into the queue of the tensor core, and then the
/// warps wait. Afterwards the queue is empty. O to shared memory, the fence and the barrier take 500 more, two waits at
/// barriers and the rounding of S 300.
///
/// So the next product has to be started before these. What comes next is the update of the state, S += K^T V of the next
/// chunk. It needs nothing but loads. So it is queued behind the outputs of this chunk, whose factor s, the rounded state,
/// was made before. While it runs, the outputs leave.
///
///     tensor core | O of n ............. | S of n + 1     | O of n + 1 ......... | S of n + 2     |
///     threads     | ............ round S | ..... store O of n | ........ round S | ..... store O  |
///
/// The outputs leave without the fence and without the barrier: each warp has 16 columns, puts them together in shared
/// memory, and stores them to global memory by itself. The waits at barriers come early, under products, too.
/// Grows out of: 11_specialized.cu
/// Improves on: `specialized` leaves the tensor core without work for half of the time.
/// Unchanged: roles, products, precision, bytes.
/// Registers: O of chunk n reads s, while s of chunk n + 1 is made. So there are two of them, and the loop is written out
/// for both: a copy from one to the other would read and write registers that a product is using. No product is under way
/// where the loop goes round; there the compiler would wait for it.
/// Resources: four times Q, K and V, since two chunks are in use at a time, two P, and a tile for the outputs of each state
/// warpgroup: at Dk = 128 184 KB of shared memory with 64 columns and 224 KB with 128.
/// Bound by: as `specialized`; with few heads, by the products.
/// Requires: as `warpgroup_mma`.
/// Weakness: as `specialized`.
/// Sources: as `specialized`.

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention.hpp"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 4;  // chunks in shared memory
constexpr int kScoreDepth = 2;     // P in shared memory

template <class Shape>
constexpr int kStateGroups = Shape::kDv / kWarpgroupColumns;
template <class Shape>
constexpr int kBlock = (2 + kStateGroups<Shape>)*kWarpgroup;  // threads
template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* ChunkTiles<Shape>::kBytes +
                                     (kScoreDepth + kStateGroups<Shape>)*PanelTile<64>::kPanelBytes;

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlock<Shape>, 1)
    queued_products_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth], scores_full[kScoreDepth], scores_empty[kScoreDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return ChunkTiles<Shape>(memory + stage * ChunkTiles<Shape>::kBytes); };
  const auto panel = [&](int number) {
    return PanelTile<64>{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * ChunkTiles<Shape>::kBytes +
                                                          number * int(PanelTile<64>::kPanelBytes))};
  };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4 + 4 * kStateGroups<Shape>);
    for (Barrier& barrier : scores_full) barrier.init(4);
    for (Barrier& barrier : scores_empty) barrier.init(4 * kStateGroups<Shape>);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    decrease_registers<24>();
    if (threadIdx.x > 0) return;
    auto ring = Ring<kPipelineDepth>::producer();
    for (int t = 0; t < a.L; t += kChunk) {
      ring.wait(empty);
      full[ring.stage()].arrive_expect(ChunkTiles<Shape>::kBytes);
      load_chunk(tiles_of(ring.stage()), maps, full[ring.stage()], b, h, t, first_column);
      ring.advance();
    }
  } else if (group == 1) {
    if constexpr (kStateGroups<Shape> == 1) decrease_registers<152>();
    if constexpr (kStateGroups<Shape> == 2) decrease_registers<104>();
    auto ring = Ring<kPipelineDepth>::consumer();
    auto score_ring = Ring<kScoreDepth>::producer();
    for (int t = 0; t < a.L; t += kChunk) {
      const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
      WarpgroupScores scores;
      ring.wait(full);
      wgmma_fence(scores);
      start_scores(scores, tiles.Q, tiles.K);
      wgmma_commit();
      wgmma_wait<0>(scores);
      if (lane_index() == 0) empty[ring.stage()].arrive();
      ring.advance();
      score_ring.wait(scores_empty);
      store_masked_scores(panel(score_ring.stage()), scores);
      fence_async_proxy();
      __syncwarp();
      if (lane_index() == 0) scores_full[score_ring.stage()].arrive();
      score_ring.advance();
    }
  } else {
    if constexpr (kStateGroups<Shape> == 1) increase_registers<240>();
    if constexpr (kStateGroups<Shape> == 2) increase_registers<192>();
    const int my_group = group - 2, my_column = first_column + my_group * kWarpgroupColumns;
    const int columns = min(kWarpgroupColumns, a.Dv - my_column);  // may be negative: a tile beyond the last column
    WarpgroupState<Shape::kDk> S;
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + my_column : nullptr;
    load_group_state<Shape::kDk>(S, start, a.initial_state.stride_l, a.Dk, columns);
    auto ring = Ring<kPipelineDepth>::consumer();  // one chunk ahead of `read`
    auto read = ring;
    auto score_ring = Ring<kScoreDepth>::consumer();
    const auto V = [&](const ChunkTiles<Shape>& tiles) {
      return PanelTile<64>{tiles.V.data + my_group * PanelTile<64>::kPanelElements};
    };
    const PanelTile<64> output = panel(kScoreDepth + my_group);

    WarpgroupOutput O;
    const auto start_update = [&] {
      const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
      ring.wait(full);
      ring.advance();
      wgmma_fence(S);
      start_state_update<Shape::kDk>(S, V(tiles), tiles.K);
      wgmma_commit();
    };
    const auto start_outputs = [&](RoundedState<Shape::kDk>& s) {
      const ChunkTiles<Shape> tiles = tiles_of(read.stage());
      wgmma_fence(O, s);
      start_output_from_state<Shape::kDk>(O, s, tiles.Q);
      start_output_from_scores(O, V(tiles), panel(score_ring.stage()));
      wgmma_commit();
    };
    // Releases what the outputs were made of, and stores them.
    const auto finish_outputs = [&](int t) {
      if (lane_index() == 0) {
        empty[read.stage()].arrive();
        scores_empty[score_ring.stage()].arrive();
      }
      read.advance();
      score_ring.advance();
      put_output(output, O, a.scale);
      store_warp_columns<PanelShape<Shape::kDk, 64>>(a.o.row(b, h, t) + my_column, a.o.stride_l, a.L - t, columns,
                                                     output, warp_in_group());
    };
    // The outputs of the chunk at t from s, and the state of the next chunk.
    const auto walk = [&](int t, RoundedState<Shape::kDk>& s, RoundedState<Shape::kDk>& s_after) {
      start_outputs(s);
      round_state<Shape::kDk>(s_after, S);
      start_update();
      wgmma_wait<1>(O, s);
      finish_outputs(t);
      score_ring.wait(scores_full);
      wgmma_wait<0>(S);
    };

    RoundedState<Shape::kDk> even, odd;
    round_state<Shape::kDk>(even, S);
    start_update();
    score_ring.wait(scores_full);
    wgmma_wait<0>(S);
    int t = 0;
    for (; t + 2 * kChunk < a.L; t += 2 * kChunk) {
      walk(t, even, odd);
      walk(t + kChunk, odd, even);
    }
    if (t + kChunk < a.L) {
      walk(t, even, odd);
      t += kChunk;
      start_outputs(odd);
      wgmma_wait<0>(O, odd);
    } else {
      start_outputs(even);
      wgmma_wait<0>(O, even);
    }
    finish_outputs(t);
    if (a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + my_column, S, a.final_state.stride_l, a.Dk, columns);
    }
  }
}

}  // namespace

void queued_products(const Bf16Arguments& a) {
  const auto start = [&]<class Shape>(Shape) {
    launch(queued_products_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kBlock<Shape>, kSharedBytes<Shape>}, a,
           chunk_maps(a));
  };
  select_shape_up_to_128<PanelShape>(a.Dk, block_columns(extents_of(a)), start);
}

}  // namespace tutorial::linear_attention
