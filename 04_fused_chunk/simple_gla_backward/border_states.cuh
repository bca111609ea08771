#pragma once
/// @file
/// The states at the borders of segments, of S and of dS in one launch: for the walks where there are too few heads for
/// runs that follow one another.

#include <cuda_runtime.h>

#include <cstdint>

#include "04_fused_chunk/simple_gla/segment_state.cuh"
#include "04_fused_chunk/simple_gla_backward/segments.cuh"
#include "common/device/launch.cuh"
#include "common/tile/block_part.cuh"

namespace tutorial::simple_gla {
namespace {

using namespace tile;

/// One of the walks that compute states alone.
struct StatesWalk {
  Bf16Arguments a;
  ChunkMaps maps;
  float *states, *decays;  ///< in the order of the walk: [B, H, segments - 1, Dk, Dv], [B, H, segments - 1]
};

/// What each segment makes of a state of zeros, in both directions. Grid (tiles of Dv of all segments but one, first of
/// S and then of dS; H; B).
template <class Shape>
__global__ void __launch_bounds__(kStateBlock, 2)
    border_states_kernel(const __grid_constant__ StatesWalk S, const __grid_constant__ StatesWalk dS, LaunchPlan plan) {
  const int each = int(gridDim.x) / 2, borders = plan.segments - 1;
  const bool is_reversed = int(blockIdx.x) >= each;
  const StatesWalk& walk = is_reversed ? dS : S;
  const int tiles = each / borders;  // the walk from the end needs no state at the beginning of the first segment
  const BlockPart<Shape> part(extents_of(walk.a), plan.length, int(blockIdx.x) - (is_reversed ? each - tiles : 0));
  const int order = is_reversed ? borders - part.segment : part.segment;
  const std::int64_t place = std::int64_t(part.head) * borders + order;
  walk_for_state<Shape>(walk.a, walk.maps, part, is_reversed, walk.states + place * walk.a.Dk * walk.a.Dv,
                        walk.decays + place);
}

/// Starts the kernels that compute the carried states.
template <class Shape>
void compute_states(const Segments& segments) {
  const int borders = segments.plan.segments - 1;
  if (borders == 0) return;
  const Bf16Arguments forward = segments.forward().a, backward = segments.gradients[2].a;
  launch(border_states_kernel<Shape>,
         {grid_of<Shape>(extents_of(forward), 2 * borders), kStateBlock, kSharedBytesForState<Shape>},
         StatesWalk{forward, chunk_maps(forward), segments.S, segments.decays(true)},
         StatesWalk{backward, chunk_maps(backward), segments.dS, segments.decays(false)}, segments.plan);
  segments.carry();
}

}  // namespace
}  // namespace tutorial::simple_gla
