/// @file
/// The walk of `register_scores` on segments of the sequence. It is `segments` on warpgroups: a first kernel computes
/// what each segment makes of a state of zeros, and the decay of the segment; common/tile/carry.cuh goes from segment to
/// segment; then the kernel of `register_scores` walks all of them. The first kernel is in segment_state.cuh.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/dispatch/walks.hpp"
#include "04_fused_chunk/simple_gla/register_scores.hpp"
#include "04_fused_chunk/simple_gla/segment_state.cuh"
#include "common/device/early_start.cuh"
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

/// For every segment but the last, its decay and what it makes of a state of zeros, the first of the initial state. All
/// chunks of these segments are whole. Grid (tiles of Dv of these segments, H, B).
/// @param states [B, H, segments - 1, Dk, Dv] @param decays [B, H, segments - 1]
template <class Shape>
__global__ void __launch_bounds__(kStateBlock, 2)
    segment_states_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps, LaunchPlan plan, float* states,
                          float* decays) {
  let_next_kernel_start();
  const BlockPart<Shape> part(extents_of(a), plan.length);
  const std::int64_t at = std::int64_t(part.head) * (plan.segments - 1) + part.segment;
  walk_for_state<Shape>(a, maps, part, false, states + at * a.Dk * a.Dv, decays + at, true);
}

template <class Shape>
void start_segment_states(const Bf16Arguments& a, const LaunchPlan& plan, float* states, float* decays) {
  launch(segment_states_kernel<Shape>,
         {grid_of<Shape>(extents_of(a), plan.segments - 1), kStateBlock, kSharedBytesForState<Shape>}, a, chunk_maps(a),
         plan, states, decays);
}

}  // namespace

void hopper_walk(const Bf16Arguments& a, LaunchPlan plan) {
  if (const int count = plan.segments - 1; count > 0) {
    const std::int64_t segments = std::int64_t(a.B) * a.H * count;
    float* states = workspace<float>("simple_gla: states", std::size_t(segments * a.Dk * a.Dv));
    float* decays = workspace<float>("simple_gla: decays", std::size_t(segments));
    a.Dk <= 64 ? start_segment_states<PanelShape<64, 64>>(a, plan, states, decays)
               : start_segment_states<PanelShape<128, 64>>(a, plan, states, decays);
    if (count > 1) {
      carry_states(a.B, a.H, a.Dk, count, CarriedStates<SegmentDecay>{{}, a.Dv, states, {decays}});
    }
    plan.starts = states;
  }
  walk_with_register_scores(a, plan);
}

}  // namespace tutorial::simple_gla
