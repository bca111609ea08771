/// @file
/// Kernel 1 of `sequence_parallel` on products of warpgroups: the walk of `warpgroup_walk` without outputs. A warpgroup has
/// the state, and a thread of a warp of its own loads.

#include <cuda_runtime.h>

#include <cstdint>

#include "03_gla/gla/dispatch/segment_states.cuh"
#include "common/device/launch.cuh"
#include "common/tile/block_part.cuh"

namespace tutorial::gla {
namespace {

constexpr int kPipelineDepth = 3;              // chunks in shared memory
constexpr int kStatesBlock = kWarpgroup + 32;  // threads

/// X_s and D_s of every segment but the last, whose chunks are all whole. Grid (tiles of 64 columns of Dv of these
/// segments, H, B).
/// @param states [B, H, segments - 1, Dk, Dv]
/// @param decays [B, H, segments - 1, Dk]
__global__ void __launch_bounds__(kStatesBlock, 2)
    segment_states_kernel(Bf16Arguments a, const __grid_constant__ PreparedMaps maps, LaunchPlan plan, float* states,
                          float* decays) {
  const BlockPart<PanelShape<kDk, 64>> part(extents_of(a), plan.length);
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return WarpgroupStateTiles(memory + stage * WarpgroupStateTiles::kBytes); };
  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4);
    fence_barrier_init();
  }
  __syncthreads();

  if (threadIdx.x >= kWarpgroup) {
    if (threadIdx.x > kWarpgroup) return;
    auto ring = Ring<kPipelineDepth>::producer();
    for (int t = part.begin; t < part.end; t += kChunk) {
      ring.wait(empty);
      full[ring.stage()].arrive_expect(WarpgroupStateTiles::kLoadedBytes);
      tiles_of(ring.stage()).load(maps, full[ring.stage()], part.b, part.h, t, part.first_column);
      ring.advance();
    }
    return;
  }
  WarpgroupState<kDk> S;
#pragma unroll
  for (float& element : S) element = 0;
  const int row = int(threadIdx.x);  // of S, whose decays this thread multiplies
  float decay = 1;
  auto ring = Ring<kPipelineDepth>::consumer();
  for (int t = part.begin; t < part.end; t += kChunk) {
    const WarpgroupStateTiles tiles = tiles_of(ring.stage());
    ring.wait(full);
#pragma unroll 1
    for (int r = 0; r < kSubChunks; ++r) {
      StateDecays<kDk> two;
      load_decays(two, tiles.decays, r);
      decay *= tiles.decays.data[tiles.decays.place(r, row)];
      decay_state<kDk>(S, two);
      wgmma_fence(S);
      start_sub_chunk_update<kDk>(S, k_from_row_to_row(tiles.V).along_k(r * kSubChunk),
                                  k_from_row_to_row(tiles.K).along_k(r * kSubChunk));
      wgmma_commit();
      wgmma_wait<0>(S);
    }
    __syncwarp();
    if (lane_index() == 0) empty[ring.stage()].arrive();
    ring.advance();
  }
  const std::int64_t segment = std::int64_t(part.head) * (plan.segments - 1) + part.segment;
  store_group_state<kDk>(states + segment * a.Dk * a.Dv + part.first_column, S, a.Dv, a.Dk, part.columns);
  if (part.first_column == 0 && row < a.Dk) store_global(decays + segment * a.Dk + row, decay);
}

}  // namespace

void start_segment_states(const Bf16Arguments& a, const PreparedMaps& maps, const LaunchPlan& plan, int count,
                          float* states, float* decays) {
  launch(segment_states_kernel,
         {grid_of<PanelShape<kDk, 64>>(extents_of(a), count), kStatesBlock,
          kPipelineDepth * std::size_t(WarpgroupStateTiles::kBytes)},
         a, maps, plan, states, decays);
}

}  // namespace tutorial::gla
