/// @file
/// `register_scores`: P never leaves the registers, and the state does not wait for scores.
///
/// Idea: a warpgroup of the scores has P as the sums of a product. Packed in pairs, these sums are the left factor of
/// the next product, so the same warpgroup computes P V. It lacks only the part of O that comes from the state. The
/// warpgroup of the state writes this part, Q S, to shared memory in fp32 and goes on. It waits only for tiles.
///
///     scores   | n: Q K^T | P in registers | P V | += diag(scale 2^b) Q S | O to the warps that store |
///     state    | S rounded, S = 2^b_end S | n: S^T Q^T | V~^T K | under it Q S to shared memory, V~ of n + 1 |
///
/// Grows out of: 4_specialized.cu
/// Improves on: in `specialized` P and V~ pass through shared memory, where products see each of them only after a
/// fence.proxy.async (250 clocks and more), and the warpgroup of the state waits for both.
/// Unchanged: the two warpgroups of the scores, which take the chunks in turn; the decays beside the tiles.
/// Equation: that of `fused`.
/// Shapes: as `specialized`. Q S [C, 64] is fp32 in shared memory, twice; P and V~ are fragments in registers.
/// Thread mapping: as `specialized`. In P V the rows of a product are the positions; in S^T Q^T they are columns of Dv.
/// So Q S is transposed on its way (tile::TransposedSums).
/// Registers: a thread of the state has 64 for S, 32 for its rounded copy, 32 for sums of Q S, and 16 each for V~ of
/// this chunk and of the next. A thread of the scores has 32 for their sums, 16 for P and 32 for O.
/// Resources: four times Q, K, V and decays, two O, two Q S: 212 KB of shared memory at Dk = 128.
/// Work: that of `specialized`. No fence.proxy.async is left.
/// Bytes: as `specialized`.
/// Bound by: with many blocks, the memory's bandwidth. With few, the chain of a chunk's scores: each of their two
/// warpgroups is busy for almost all of the time of two chunks.
/// Requires: as `specialized`.
/// Weakness: a third warpgroup of scores would need a fifth set of tiles, for which there is no shared memory. And as
/// in `specialized`, there is one block per 64 columns of a head.
/// Sources: P as a register operand: Dao, FlashAttention-2 (arXiv 2307.08691), section 3.1, for softmax.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/chunk_decays.cuh"
#include "04_fused_chunk/simple_gla/decayed_values.cuh"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/grid.cuh"
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

/// Grid (tiles of 64 columns of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlock, 1)
    register_scores_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column);
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth];
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
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group < 2) {
    decrease_registers<112>();
    auto ring = Ring<kPipelineDepth>::consumer();
    auto score_ring = Ring<kDepth>::producer();  // of O, which the scores become
    auto state_ring = Ring<kDepth>::consumer();
    for (int t = 0; t < a.L; t += kChunk) {
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
      for (int t = 0; t < a.L; t += kChunk) {
        ring.wait(empty);
        fence_async_proxy();  // V has been read by ldmatrix
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
        store_tile_by<kStoreThreads>(thread - kWarpgroup + kStoreThreads, a.o.row(b, h, t) + first_column, a.o.stride_l,
                                     a.L - t, columns, panel(output_ring.stage()), [&] {
                                       __syncwarp();
                                       if (lane_index() == 0) output_empty[output_ring.stage()].arrive();
                                     });
        output_ring.advance();
      }
    }
  } else {
    increase_registers<208>();
    WarpgroupState<Shape::kDk> S;
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
    load_group_state<Shape::kDk>(S, start, a.initial_state.stride_l, a.Dk, columns);
    auto ring = Ring<kPipelineDepth>::consumer();  // one chunk ahead of `read` during a chunk
    auto read = ring;
    auto output_ring = Ring<kDepth>::producer();  // the state's part of the outputs
    RoundedState<Shape::kDk> s;
    StateFactors now, next = {};
    ring.wait(full);
    load_state_factors(now, tiles_of(ring.stage()).V, decays_of(ring.stage()));
    for (int t = 0; t < a.L; t += kChunk) {
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
      if (t + kChunk < a.L) {
        ring.wait(full);
        load_state_factors(next, tiles_of(ring.stage()).V, decays_of(ring.stage()));
      }
      wgmma_wait<0>(S, now.v);
      if (lane_index() == 0) empty[read.stage()].arrive();
      read.advance();
      now = next;
    }
    if (a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
}

}  // namespace

void register_scores(const Bf16Arguments& a) {
  const auto start = [&]<class Shape>(Shape) {
    launch(register_scores_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kBlock, kSharedBytes<Shape>}, a,
           chunk_maps(a));
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

}  // namespace tutorial::simple_gla
