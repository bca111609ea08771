/// @file
/// `specialized`: chapter 02's kernel for Hopper with three decays, and which warps compute them.
///
/// Idea: all others wait for the warpgroup of the state. Of the three decays it keeps only what no other warps can
/// compute: one multiplication of each element of S and of O^T. Everything else depends only on the chunk. g of a chunk
/// is 64 numbers: a warp that was idle adds them up and leaves all powers that depend on one position beside the tiles.
/// The two warpgroups of the scores take turns, so each has the time of two chunks for one. They multiply the scores,
/// and V on its way into the state, by their decays.
///
///     loads    | Q, K, V of n + 3 ......................................................................... |
///     decays   | g of n + 7; b_t, 2^b_t, 2^(b_end - b_t) of n + 3 ......................................... |
///     scores   | n + 1: Q K^T, under it V~ = diag(2^(b_end - b)) V | P_ti = scale (q_t . k_i) 2^(b_t - b_i) |
///     state    | n: S = 2^b_end S | S^T Q^T, V^T P^T | V~^T K, under it O = diag(scale 2^b) Q S + P V ..... |
///
/// Grows out of: 02_chunkwise/linear_attention/13_balanced_roles.cu
/// Improves on: `fused` computes these decays in every warp, beside products by mma.sync.
/// Unchanged: the roles of `balanced_roles` and the order of the products.
/// Equation: that of `fused`.
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16; g [B, H, L], S_0 and final_state [B, H, Dk, Dv] fp32. V~ and P
/// are panels of bf16 in shared memory. Beside each set of tiles lie its decays, 260 numbers in fp32
/// (chunk_decays.cuh).
/// Thread mapping: as `balanced_roles`. Each lane of the warp that adds up has two positions, and g of the next four
/// chunks is in flight. Two warps store. Each warp of the scores computes 16 rows of P and of V~.
/// Synchronization: a phase of `full` ends when the bytes of the tiles have arrived and the decays have been written.
/// P and V~ of a chunk are handed over together.
/// Two arrays of sums: S^T Q^T and V^T P^T have one each. With a single array, the threads would have to wait between
/// the two products to multiply the sums by 2^b.
/// Registers: a thread of the state has 64 for S, 32 for its rounded copy, and two arrays of sums of 32 each.
/// Resources: four times Q, K, V and decays, two P, V~ and O: 212 KB of shared memory at Dk = 128.
/// Work: that of `balanced_roles`; and per chunk and tile of Dv, 6 or 7 exponentials per lane of the warp that adds up
/// and 8 to 14 per thread of the scores: one per score in the blocks of 16 x 16 on the diagonal, and two per block to
/// their left.
/// Bytes: q, k and g once per tile of Dv, v and o once.
/// Bound by: the instructions of the warpgroups of the scores, for which the state waits.
/// Requires: compute capability 9.0, Dk <= 128, Dk and Dv multiples of 16, tensors that a tensor map can describe.
/// Gates as in `fused`.
/// Weakness: P and V~ pass through shared memory, where products see them only after a fence, and the state waits for
/// both. `register_scores` keeps them in registers.
/// Sources: as chapter 02's `specialized`.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/chunk_decays.cuh"
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
constexpr int kDepth = 2;                       // P, V~ and O in shared memory
constexpr int kBlock = 4 * kWarpgroup;          // threads
constexpr int kStoreThreads = kWarpgroup - 64;  // of them

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth*(ChunkTiles<Shape>::kBytes + ChunkDecays::kBytes) +
                                     3 * kDepth* PanelTile<64>::kPanelBytes;

/// Grid (tiles of 64 columns of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlock, 1)
    specialized_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps) {
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
  const auto decays_of = [&](int stage) { return ChunkDecays(panel(3 * kDepth).data, stage); };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(2);       // one for the bytes, one for the decays
    for (Barrier& barrier : empty) barrier.init(4 + 4);  // the warps with the chunk's scores, and those of the state
    for (Barrier& barrier : scores_full) barrier.init(4);
    for (Barrier& barrier : scores_empty) barrier.init(4);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(2);
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
        const ChunkDecays decays = decays_of(ring.stage());
        WarpgroupScores scores;
        ring.wait(full);
        wgmma_fence(scores);
        start_scores(scores, tiles.Q, tiles.K);
        wgmma_commit();
        score_ring.wait(scores_empty);
        store_decayed_values(panel(2 * kDepth + score_ring.stage()), tiles.V, decays);
        wgmma_wait<0>(scores);
        store_decayed_scores(panel(score_ring.stage()), scores, decays, a.scale);
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
    if (thread == 0) {
      auto ring = Ring<kPipelineDepth>::producer();
      for (int t = 0; t < a.L; t += kChunk) {
        ring.wait(empty);
        full[ring.stage()].arrive_expect(ChunkTiles<Shape>::kBytes);
        load_chunk(tiles_of(ring.stage()), maps, full[ring.stage()], b, h, t, first_column);
        ring.advance();
      }
    } else if (thread >= 32 && thread < 64) {
      auto ring = Ring<kPipelineDepth>::producer();
      for_each_chunk_with_g(a, b, h, 0, kChunk, (a.L - 1) / kChunk + 1, a.L, [&](int, float2 g) {
        const ChunkSums sums(g);
        ring.wait(empty);
        decays_of(ring.stage()).store(sums, a.scale);
        __syncwarp();
        if (lane_index() == 0) full[ring.stage()].arrive();
        ring.advance();
      });
    } else if (thread >= 64) {
      auto output_ring = Ring<kDepth>::consumer();
      for (int t = 0; t < a.L; t += kChunk) {
        output_ring.wait(output_full);
        store_tile_by<kStoreThreads>(thread - 64, a.o.row(b, h, t) + first_column, a.o.stride_l, a.L - t, columns,
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
      const ChunkDecays decays = decays_of(ring.stage());
      WarpgroupOutput O, from_state;
      RoundedState<Shape::kDk> s;
      round_state<Shape::kDk>(s, S);
      score_ring.wait(scores_full);  // the scores' warps have waited for `full` before
      decay_state(S, decays.whole());
      wgmma_fence(O, from_state, s, S);
      start_output_from_state<Shape::kDk>(from_state, s, tiles.Q);
      start_output_from_scores(O, tiles.V, panel(score_ring.stage()), false);
      wgmma_commit();
      start_state_update<Shape::kDk>(S, panel(2 * kDepth + score_ring.stage()), tiles.K);
      wgmma_commit();
      wgmma_wait<1>(O, from_state, s);
      add_positions(O, from_state, [=](int t) { return decays.pair_from_start(t); });
      output_ring.wait(output_empty);
      put_output(panel(kDepth + output_ring.stage()), O, 1.0f);
      __syncwarp();
      if (lane_index() == 0) output_full[output_ring.stage()].arrive();
      output_ring.advance();
      wgmma_wait<0>(S);
      if (lane_index() == 0) scores_empty[score_ring.stage()].arrive();
      score_ring.advance();
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

void specialized(const Bf16Arguments& a) {
  const auto start = [&]<class Shape>(Shape) {
    launch(specialized_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kBlock, kSharedBytes<Shape>}, a,
           chunk_maps(a));
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

}  // namespace tutorial::simple_gla
