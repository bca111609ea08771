/// @file
/// `warpgroup_walk`: the walk on products of warpgroups, with sums that are multiplied by decays between two products.
///
/// Idea: a sub-chunk needs three products, O_r = q~_r S + P_rr V_r and S += k~_r^T V_r. With `wgmma` they take a few
/// instructions, on factors that bulk copies have loaded (chapter 02, from `bulk_copies` on). The state is in the
/// sums of the last product for the whole sequence, and before each sub-chunk all of it must be multiplied by D_r. Sums
/// belong to the tensor core from the start of a product to the wait for it. So the warpgroup waits for S, rounds it
/// for the outputs, multiplies it, announces this with wgmma_fence(), and starts the next product that adds to it.
/// Products run in the order in which they are started: the outputs are queued behind that product, and run while the
/// next S is rounded and multiplied.
///
///     tensor core | S of r + 1 | O of r ......... | S of r + 2 | O of r + 1 ....... |
///     threads                  | s, S D of r + 1  |  put O of r
///
/// Grows out of: 7_subchunk_walk.cu; large step: bulk copies, products of warpgroups and roles come at once. Chapter 02
/// has a stage for each of them (`bulk_copies`, `warpgroup_mma`, `specialized`), and stages in between would show them
/// again.
/// Improves on: `subchunk_walk` issues about a thousand ldmatrix and mma per chunk, with two warps per scheduler.
/// Unchanged: prepare(), equation and precision; 64 positions are copied at a time. Segments as in `segments`.
/// Shapes: as in `subchunk_walk`; tiles are panels of 64 columns of bf16 or 32 of fp32 (common/tile/panel_tile.cuh and
/// float_panels.cuh).
/// Thread mapping: block (tile and segment, h, b) has 64 columns of Dv. In warpgroup 0, one thread loads and three
/// warps store outputs. Warpgroup 1 has the state.
/// Synchronization: the warps of the state wait for tiles (`full`) and for a free tile of outputs (`output_empty`). The
/// loads wait for the state (`empty`), and the stores wait for outputs (`output_full`).
/// Registers: the outputs of r read s of r while s of r + 1 is computed. So there are two copies of s, and the loop
/// over the four sub-chunks of a chunk is unrolled.
/// Resources: 202 registers. Four times q~, k~, V, scores and decays, and two O: 224 KB of shared memory, one block per
/// multiprocessor.
/// Work: as `subchunk_walk`; a chunk takes 4 x 10 instructions of a warpgroup.
/// Bytes: as `segments`; q~, k~, decays and scores are read once per 64 columns of Dv, after the first time
/// from the second-level cache.
/// Bound by: the dependent products of a sub-chunk. A product of 16 columns takes as long as one of 64. With many
/// heads, the walk and prepare() are bound by the memory's bandwidth.
/// Requires: compute capability 9.0, Dk <= 128, what `subchunk_walk` requires, and a v that bulk copies support.
/// Weakness: prepare() writes q~ and k~ to memory, as before, and the walk waits for all of it.
/// Sources: PTX ISA, "wgmma"; chapter 02's `queued_products`.

#include <cuda_runtime.h>

#include "03_gla/gla/launch_plan.hpp"
#include "03_gla/gla/prepare.hpp"
#include "03_gla/gla/warpgroup_tiles.cuh"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_sub_chunk.cuh"

namespace tutorial::gla {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 4;               // chunks in shared memory
constexpr int kDepth = 2;                       // O in shared memory
constexpr int kBlock = 2 * kWarpgroup;          // threads
constexpr int kStoreThreads = kWarpgroup - 32;  // of them
constexpr int kBytes = kPipelineDepth * WarpgroupTiles::kBytes + kDepth * int(PanelTile<64>::kPanelBytes);

/// Grid (tiles of 64 columns of Dv of all segments, H, B).
__global__ void __launch_bounds__(kBlock, 1)
    warpgroup_kernel(Bf16Arguments a, const __grid_constant__ PreparedMaps maps, LaunchPlan plan) {
  const BlockPart<PanelShape<kDk, 64>> part(extents_of(a), plan.length);
  const int b = part.b, h = part.h, begin = part.begin, end = part.end;
  const int first_column = part.first_column, columns = part.columns;
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth], output_full[kDepth], output_empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return WarpgroupTiles(memory + stage * WarpgroupTiles::kBytes); };
  const auto output_of = [&](int stage) {
    return PanelTile<64>{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * WarpgroupTiles::kBytes +
                                                          stage * int(PanelTile<64>::kPanelBytes))};
  };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(3);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup, thread = int(threadIdx.x) % kWarpgroup;
  if (group == 0) {
    if (thread == 0) {
      auto ring = Ring<kPipelineDepth>::producer();
      for (int t = begin; t < end; t += kChunk) {
        ring.wait(empty);
        fence_async_proxy();  // the decays have been read by ordinary loads
        full[ring.stage()].arrive_expect(WarpgroupTiles::kLoadedBytes);
        tiles_of(ring.stage()).load(maps, full[ring.stage()], b, h, t, first_column);
        ring.advance();
      }
    } else if (thread >= 32) {
      auto output_ring = Ring<kDepth>::consumer();
      for (int t = begin; t < end; t += kChunk) {
        output_ring.wait(output_full);
        store_tile_by<kStoreThreads>(thread - 32, a.o.row(b, h, t) + first_column, a.o.stride_l, end - t, columns,
                                     output_of(output_ring.stage()), [&] {
                                       __syncwarp();
                                       if (lane_index() == 0) output_empty[output_ring.stage()].arrive();
                                     });
        output_ring.advance();
      }
    }
  } else {
    WarpgroupState<kDk> S;
    const ConstRows start = part.start(a.initial_state, plan, extents_of(a));
    load_group_state<kDk>(S, start.data, start.stride, a.Dk, columns);
    auto ring = Ring<kPipelineDepth>::consumer();
    auto output_ring = Ring<kDepth>::producer();
    for (int t = begin; t < end; t += kChunk) {
      const WarpgroupTiles tiles = tiles_of(ring.stage());
      const PanelTile<64> output = output_of(output_ring.stage());
      RoundedState<kDk> s[2];
      StateDecays<kDk> decays;
      SubChunkOutput O;
      output_ring.wait(output_empty);
      ring.wait(full);
      load_decays(decays, tiles.decays, 0);
#pragma unroll
      for (int r = 0; r < kSubChunks; ++r) {
        const int row = r * kSubChunk;
        const auto v = k_from_row_to_row(tiles.V).along_k(row);
        round_state<kDk>(s[r % 2], S);
        decay_state<kDk>(S, decays);
        wgmma_fence(S, s[r % 2]);
        start_sub_chunk_update<kDk>(S, v, k_from_row_to_row(tiles.K).along_k(row));
        wgmma_commit();
        if (r > 0) {
          wgmma_wait<1>(O, s[(r + 1) % 2]);
          put_sub_chunk_output(output, O, row - kSubChunk, a.scale);
        }
        wgmma_fence(O);
        start_sub_chunk_output<kDk>(O, s[r % 2], k_along_rows(tiles.Q).along_mn(row));
        start_sub_chunk_output(O, v, k_from_row_to_row(tiles.P).along_k(row));
        wgmma_commit();
        if (r + 1 < kSubChunks) load_decays(decays, tiles.decays, r + 1);
        wgmma_wait<1>(S);
      }
      wgmma_wait<0>(O, s[1]);
      __syncwarp();  // all lanes have read the decays
      if (lane_index() == 0) empty[ring.stage()].arrive();
      ring.advance();
      put_sub_chunk_output(output, O, kChunk - kSubChunk, a.scale);
      __syncwarp();
      if (lane_index() == 0) output_full[output_ring.stage()].arrive();
      output_ring.advance();
    }
    if (end == a.L && a.final_state.data) {
      store_group_state<kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
    }
  }
}

}  // namespace

void walk_on_warpgroups(const Bf16Arguments& a, const LaunchPlan& plan) {
  const Prepared prepared = prepare(a);
  const LaunchPlan started = with_starts(a, prepared, plan);
  launch(warpgroup_kernel, {grid_of<PanelShape<kDk, 64>>(extents_of(a), plan.segments), kBlock, std::size_t(kBytes)}, a,
         prepared_maps(a, prepared), started);
}

void warpgroup_walk(const Bf16Arguments& a) {
  walk_on_warpgroups(a, make_launch_plan(a.L, 64, 1));
}

}  // namespace tutorial::gla
