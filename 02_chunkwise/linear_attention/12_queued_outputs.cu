/// @file
/// Stage 12, `queued_outputs`: the tensor core always has the next product in its queue.
///
/// Idea: products of a warpgroup run in the order in which they are started. In `specialized` they are started together, and
/// then the warpgroup waits for the state, rounds it, and starts the next: meanwhile the tensor core has nothing to do for
/// it. But only the state is needed for what comes next, and the outputs are not. So the state's product goes first, and
/// the outputs' products, which are longer, queue behind it. While they run, the warpgroup rounds the state and queues the
/// next chunk's update. While that runs, it stores the outputs.
///
///     tensor core | S of n      | O of n .............. | S of n + 1    | O of n + 1 ......... |
///     threads     | store n - 1 | wait S, round | queue | store n       | wait S, round | queue |
///
/// Grows out of: 11_specialized.cu
/// Improves on: `specialized` takes 1500 clocks for a chunk whose products take 640.
/// Unchanged: roles, barriers, products, precision, bytes.
/// Registers: O of chunk n reads s, the rounded state, until it is done, and s of chunk n + 1 is made before that. So there
/// are two of them, for even chunks and odd ones, and the loop is written out for both: a copy from one to the other would
/// read and write registers that a product is using.
/// Resources: four times Q, K and V with 64 columns, because a chunk's tiles are in use until the next chunk's state is
/// done: 192 KB of shared memory at Dk = 128.
/// Bound by: as `specialized`; with few heads, the products: 896 clocks for a chunk and 64 columns.
/// Requires: as `warpgroup_mma`.
/// Weakness: as `specialized`.
/// Sources: as `specialized`.

#include <cuda_runtime.h>

#include <type_traits>

#include "02_chunkwise/linear_attention.hpp"
#include "common/device/launch.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kScoreDepth = 2;  // P in shared memory

template <class Shape>
constexpr int kPipelineDepth = Shape::kDv == 64 ? 4 : 3;  // chunks in shared memory
template <class Shape>
constexpr int kStateGroups = Shape::kDv / kWarpgroupColumns;
template <class Shape>
constexpr int kBlock = (2 + kStateGroups<Shape>)*kWarpgroup;  // threads
template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth<Shape>* ChunkTiles<Shape>::kBytes +
                                     (kScoreDepth + 2 * kStateGroups<Shape>)*PanelTile<64>::kPanelBytes;

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlock<Shape>, 1)
    queued_outputs_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps,
                          const __grid_constant__ TensorMap o) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  __shared__ Barrier full[kPipelineDepth<Shape>], empty[kPipelineDepth<Shape>], scores_full[kScoreDepth],
      scores_empty[kScoreDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return ChunkTiles<Shape>(memory + stage * ChunkTiles<Shape>::kBytes); };
  const auto panel = [&](int number) {
    return PanelTile<64>{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth<Shape> * ChunkTiles<Shape>::kBytes +
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
    auto ring = Ring<kPipelineDepth<Shape>>::producer();
    for (int t = 0; t < a.L; t += kChunk) {
      ring.wait(empty);
      full[ring.stage()].arrive_expect(ChunkTiles<Shape>::kBytes);
      load_chunk(tiles_of(ring.stage()), maps, full[ring.stage()], b, h, t, first_column);
      ring.advance();
    }
  } else if (group == 1) {
    if constexpr (kStateGroups<Shape> == 1) decrease_registers<152>();
    if constexpr (kStateGroups<Shape> == 2) decrease_registers<104>();
    auto ring = Ring<kPipelineDepth<Shape>>::consumer();
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
    auto ring = Ring<kPipelineDepth<Shape>>::consumer();
    auto score_ring = Ring<kScoreDepth>::consumer();

    // Stores the outputs of the chunk at t.
    const auto store = [&](int t, const WarpgroupOutput& O) {
      const PanelTile<64> output = panel(kScoreDepth + 2 * my_group + t / kChunk % 2);
      put_output(output, O, a.scale);
      fence_async_proxy();
      const bool stores = threadIdx.x % kWarpgroup == 0;
      if (stores) wait_stores_read<0>();
      wait_at_named_barrier(1 + my_group, kWarpgroup);
      if (stores) {
        store_tile(o, output.data, {.column = my_column, .position = t, .head = h, .batch = b});
        commit_stores();
      }
    };
    // The chunk at t: O from s, and s_after for the next chunk. Under its products the outputs of the chunk before.
    const auto walk = [&](int t, RoundedState<Shape::kDk>& s, WarpgroupOutput& O, RoundedState<Shape::kDk>& s_after,
                          const WarpgroupOutput& O_before) {
      const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
      const PanelTile<64> V{tiles.V.data + my_group * PanelTile<64>::kPanelElements};
      ring.wait(full);
      score_ring.wait(scores_full);
      wgmma_fence(S, s, O);
      start_state_update<Shape::kDk>(S, V, tiles.K);
      wgmma_commit();
      start_output_from_state<Shape::kDk>(O, s, tiles.Q);
      start_output_from_scores(O, V, panel(score_ring.stage()));
      wgmma_commit();
      if (t > 0) store(t - kChunk, O_before);
      wgmma_wait<1>(S);
      round_state<Shape::kDk>(s_after, S);
      wgmma_wait<0>(O, s);
      if (lane_index() == 0) {
        empty[ring.stage()].arrive();
        scores_empty[score_ring.stage()].arrive();
      }
      ring.advance();
      score_ring.advance();
    };
    WarpgroupOutput even, odd;
    RoundedState<Shape::kDk> s_even, s_odd;
    round_state<Shape::kDk>(s_even, S);
    int t = 0;
    for (; t + kChunk < a.L; t += 2 * kChunk) {
      walk(t, s_even, even, s_odd, odd);
      walk(t + kChunk, s_odd, odd, s_even, even);
    }
    if (t < a.L) {
      walk(t, s_even, even, s_odd, odd);
      store(t, even);
    } else {
      store(t - kChunk, odd);
    }
    if (threadIdx.x % kWarpgroup == 0) wait_stores_read<0>();
    if (a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + my_column, S, a.final_state.stride_l, a.Dk, columns);
    }
  }
}

}  // namespace

void queued_outputs(const Bf16Arguments& a) {
  const auto start = [&]<class Shape>(Shape) {
    launch(queued_outputs_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kBlock<Shape>, kSharedBytes<Shape>}, a,
           chunk_maps(a), output_map(a));
  };
  select_shape_up_to_128<PanelShape>(a.Dk, block_columns(extents_of(a)), start);
}

}  // namespace tutorial::linear_attention
