/// @file
/// Stage 12, `specialized`: each warpgroup has a task of its own, and the warpgroups wait for each other only at
/// barriers.
///
/// Idea: work that does not depend on the state need not wait for it. One thread of a warpgroup loads, as far ahead as
/// shared memory allows. Another warpgroup computes the scores of the chunks that have arrived, up to two chunks ahead of
/// the state. The third one holds the state and walks the chunks; most of the time, its inputs are
/// ready before it needs them. So the tensor cores have work from two warpgroups.
///
///     loads    | n + 2 ........ | n + 3 ........ |         tiles:   ring of 3, `full` and `empty`
///     scores   | n + 1 | mask   | n + 2 | mask   |         P:       ring of 2, `scores_full` and `scores_empty`
///     state    | n: O, S, store | n + 1: O, S    |         outputs: 2 tiles, by bulk stores
///
/// Grows out of: 11_warpgroup_mma.cu
/// Improves on: `warpgroup_mma` waits for its tile, its scores, a barrier and its state, one after the other.
/// Unchanged: the products, precision, bytes.
/// Thread mapping: block (x, h, b) takes 64 columns of Dv. Warpgroup 0 computes scores, one thread of
/// warpgroup 1 loads, and warpgroup 2 holds the state.
/// Synchronization: a set of tiles is free when both the warpgroup of the scores and that of the state have read it. P
/// is free when the warpgroup of the state has read it. One lane per warp arrives at the barrier, after wgmma_wait(),
/// which is an instruction of the whole warp.
/// Outputs: the warpgroup of the state assembles O in shared memory, and one thread starts a bulk store, which runs
/// asynchronously. There are two tiles for O. Before the barrier of chunk n, that thread waits until the store of chunk
/// n - 1 has read its tile. After the barrier all threads know this, and they write chunk n + 1 there.
/// Resources: three sets of Q, K and V, two P and two O: 152 KB of shared memory at Dk = 128, one block per
/// multiprocessor. Each thread of a kernel of 384 threads starts with 168 registers. The loading warpgroup keeps 24 of
/// them and the warpgroup of the scores 152, so that the warpgroup of the state can have 240 (setmaxnreg): 24 + 152 +
/// 240 <= 3 x 168.
/// Bound by: the memory's bandwidth, if there are at least as many blocks as multiprocessors. With fewer blocks, the
/// time that a block takes for a chunk, some 1600 clocks.
/// Requires: as `warpgroup_mma`.
/// Weakness: the warpgroup of the state also has fences and barriers between its products; `balanced_roles` moves them
/// elsewhere. And 32 heads of Dv = 128 are only 64 blocks, however long the sequence is. `dispatch` cuts the sequence
/// into segments.
/// Sources: PTX ISA, "setmaxnreg" and "cp.async.bulk.wait_group"; FlashAttention-3 (arXiv 2407.08608, section 3.1)
/// divides the work of attention in the same way.

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention.hpp"
#include "common/device/launch.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/grid.cuh"
#include "common/tile/wgmma_products.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 3;  // chunks in shared memory
constexpr int kDepth = 2;          // P and O in shared memory

constexpr int kBlock = 3 * kWarpgroup;  // threads

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* ChunkTiles<Shape>::kBytes + 2 * kDepth* PanelTile<64>::kPanelBytes;

/// Grid (tiles of 64 columns of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlock, 1)
    specialized_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps, const __grid_constant__ TensorMap o) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int first_column = int(blockIdx.x) * Shape::kDv, columns = min(Shape::kDv, a.Dv - first_column);
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth], scores_full[kDepth], scores_empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return ChunkTiles<Shape>(memory + stage * ChunkTiles<Shape>::kBytes); };
  const auto panel = [&](int number) {
    return PanelTile<64>{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * ChunkTiles<Shape>::kBytes +
                                                          number * int(PanelTile<64>::kPanelBytes))};
  };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4 + 4);  // the warps with the scores, and those of the state
    for (Barrier& barrier : scores_full) barrier.init(4);
    for (Barrier& barrier : scores_empty) barrier.init(4);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    decrease_registers<152>();
    auto ring = Ring<kPipelineDepth>::consumer();
    auto score_ring = Ring<kDepth>::producer();
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
  } else if (group == 1) {
    decrease_registers<24>();
    if (threadIdx.x % kWarpgroup > 0) return;
    auto ring = Ring<kPipelineDepth>::producer();
    for (int t = 0; t < a.L; t += kChunk) {
      ring.wait(empty);
      full[ring.stage()].arrive_expect(ChunkTiles<Shape>::kBytes);
      load_chunk(tiles_of(ring.stage()), maps, full[ring.stage()], b, h, t, first_column);
      ring.advance();
    }
  } else {
    increase_registers<240>();
    WarpgroupState<Shape::kDk> S;
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
    load_group_state<Shape::kDk>(S, start, a.initial_state.stride_l, a.Dk, columns);
    auto ring = Ring<kPipelineDepth>::consumer();
    auto score_ring = Ring<kDepth>::consumer();
    for (int t = 0; t < a.L; t += kChunk) {
      const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
      const PanelTile<64> output = panel(kDepth + t / kChunk % 2);
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
      put_output(output, O, a.scale);
      fence_async_proxy();
      const bool stores = threadIdx.x % kWarpgroup == 0;
      if (stores) wait_stores_read<0>();
      wait_at_named_barrier(1, kWarpgroup);
      if (stores) {
        store_tile(o, output.data, {.column = first_column, .position = t, .head = h, .batch = b});
        commit_stores();
      }
      wgmma_wait<0>(S);
      if (lane_index() == 0) empty[ring.stage()].arrive();
      ring.advance();
    }
    if (threadIdx.x % kWarpgroup == 0) wait_stores_read<0>();
    if (a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
}

}  // namespace

void specialized(const Bf16Arguments& a) {
  const auto start = [&]<class Shape>(Shape) {
    launch(specialized_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kBlock, kSharedBytes<Shape>}, a, chunk_maps(a),
           output_map(a));
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

}  // namespace tutorial::linear_attention
