/// @file
/// How `specialized` and `register_scores` are started, what they require, and the walk of the latter on segments of
/// the sequence, for dispatch. It is `sequence_parallel` on warpgroups: a first kernel computes what each segment makes
/// of a state of zeros, and the decay of the segment; common/tile/carry.cuh goes from segment to segment; then the
/// kernel of `register_scores` walks all of them.
///
/// The first kernel goes through a segment from its end to its beginning. So the decay from a position to the end of
/// the segment is known when the kernel reaches its chunk:
///
/// X = sum of K_n^T (diag(2^(b_e - b + later)) V_n), where `later` is the sum of the b_e of the chunks after n
///
/// So all decays are in V~, and X is never multiplied. The warp that loads adds up the gates. V is loaded from shared
/// memory into registers and multiplied there; the result, V~, is the left factor of the product. V~ of the next chunk
/// is computed while the product runs.

#include <cuda_runtime.h>

#include <string>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/launch_plan.hpp"
#include "04_fused_chunk/simple_gla/warpgroup_gate.cuh"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/carry.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::simple_gla {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 4;        // chunks in shared memory
constexpr int kBlock = kWarpgroup + 32;  // threads: those of the state, and a warp that loads

/// For every segment but the last, what it makes of a state of zeros, and its decay. All chunks of these segments are
/// whole. Grid (tiles of Dv of these segments, H, B).
/// @param states [B, H, segments - 1, Dk, Dv] @param decays [B, H, segments - 1]
template <class Shape>
__global__ void __launch_bounds__(kBlock, 2)
    segment_states_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps, LaunchPlan plan, float* states,
                          float* decays) {
  const BlockPart<Shape> part(extents_of(a), plan.length);
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return StateTiles<Shape>(memory + stage * StateTiles<Shape>::kBytes); };
  const auto decays_of = [&](int stage) {
    return ChunkDecays(memory + kPipelineDepth * StateTiles<Shape>::kBytes, stage);
  };
  const int last = part.end - kChunk, count = (part.end - part.begin) / kChunk;
  const std::int64_t at = std::int64_t(part.head) * (plan.segments - 1) + part.segment;
  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(2);  // one for the bytes, one for the decays
    for (Barrier& barrier : empty) barrier.init(4);
    fence_barrier_init();
  }
  __syncthreads();

  if (threadIdx.x >= kWarpgroup) {
    const bool is_first = threadIdx.x == kWarpgroup;
    auto ring = Ring<kPipelineDepth>::producer();
    double later = 0;
    for_each_chunk_with_g(a, part.b, part.h, last, -kChunk, count, part.end, [&](int t, float2 g) {
      const StateTiles<Shape> tiles = tiles_of(ring.stage());
      Barrier& barrier = full[ring.stage()];
      ring.wait(empty);
      if (is_first) {
        barrier.arrive_expect(StateTiles<Shape>::kBytes);
        load_chunk(tiles, maps, barrier, part.b, part.h, t, part.first_column);
      }
      ChunkSums sums(g);
      const float chunk = sums.end;
      sums.end += float(later);
      later += chunk;
      decays_of(ring.stage()).store_to_end(sums);
      __syncwarp();
      if (is_first) barrier.arrive();
      ring.advance();
    });
    if (part.first_column == 0 && is_first) store_global(decays + at, exp2f(float(later)));
    return;
  }
  WarpgroupState<Shape::kDk> X;
#pragma unroll
  for (float& element : X) element = 0;
  auto ring = Ring<kPipelineDepth>::consumer();  // one chunk ahead of `read`
  auto read = ring;
  const auto make_values = [&](ValueFragments& v) {
    ring.wait(full);
    load_decayed_values(v, tiles_of(ring.stage()).V, decays_of(ring.stage()));
    ring.advance();
  };
  ValueFragments v;
  make_values(v);
  for (int n = 0; n < count; ++n) {
    wgmma_fence(X, v);
    start_state_update<Shape::kDk>(X, v, tiles_of(read.stage()).K);
    wgmma_commit();
    ValueFragments v_next = {};
    if (n + 1 < count) make_values(v_next);
    wgmma_wait<0>(X, v);
    __syncwarp();  // all lanes have read V
    if (lane_index() == 0) empty[read.stage()].arrive();
    read.advance();
#pragma unroll
    for (int i = 0; i < kChunk / 16; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) v[i][j] = v_next[i][j];
    }
  }
  store_group_state<Shape::kDk>(states + at * a.Dk * a.Dv + part.first_column, X, a.Dv, a.Dk, part.columns);
}

template <class Shape>
void start_segment_states(const Bf16Arguments& a, const LaunchPlan& plan, float* states, float* decays) {
  launch(segment_states_kernel<Shape>,
         {grid_of<Shape>(extents_of(a), plan.segments - 1), kBlock,
          kPipelineDepth * (StateTiles<Shape>::kBytes + ChunkDecays::kBytes)},
         a, chunk_maps(a), plan, states, decays);
}

}  // namespace

void hopper_walk(const Bf16Arguments& a, LaunchPlan plan) {
  if (const int count = plan.segments - 1; count > 0) {
    const std::int64_t segments = std::int64_t(a.B) * a.H * count;
    float* states = workspace<float>("simple_gla: states", std::size_t(segments * a.Dk * a.Dv));
    float* decays = workspace<float>("simple_gla: decays", std::size_t(segments));
    a.Dk <= 64 ? start_segment_states<PanelShape<64, 64>>(a, plan, states, decays)
               : start_segment_states<PanelShape<128, 64>>(a, plan, states, decays);
    carry_states(a.B, a.H, a.Dk, count, CarriedStates<SegmentDecay>{a.initial_state, a.Dv, states, {decays}});
    plan.starts = states;
  }
  walk_with_register_scores(a, plan);
}

void specialized(const Bf16Arguments& a) {
  walk_on_warpgroups(a, make_launch_plan(a.L, 64, 1));
}
void register_scores(const Bf16Arguments& a) {
  walk_with_register_scores(a, make_launch_plan(a.L, 64, 1));
}

std::string specialized_unsupported(const Bf16Arguments& a) {
  if (a.Dk > 128) return "Dk > 128: the state and its copy would not fit into a warpgroup's registers";
  const std::string reason = tensor_core_unsupported(a);
  return reason.empty() ? bulk_copies_unsupported(a) : reason;
}

}  // namespace tutorial::simple_gla
