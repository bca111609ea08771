/// @file
/// The walk of `bounded_start` with an exact way for heads that forget nothing, and that of `register_scores` for one
/// segment.
///
/// A warm-up goes over `reach` segments at most. Where gates forget less in them, the segment starts from a state in
/// memory, as in `segments`: a first kernel computes what each segment makes of a state of zeros, and the decay of the
/// segment; common/tile/carry.cuh goes from segment to segment; then the kernel of `bounded_start` walks all of them. The
/// first kernel is in segment_state.cuh.
///
/// The host does not know the gates and starts all three kernels. Each block asks the gates itself, and the same gates
/// give the same answer in all kernels. The state before segment m is wanted if segment m has no warm-up, or one of the
/// `reach` segments after it: their state follows from that of m. No segment after these needs it. If m + reach is not
/// such a segment, its warm-up tells that segments m to m + reach - 1 leave at most 2^-24 of the state before m. A block of
/// the first kernel whose state is not wanted leaves a gap. Where there are only gaps, the first two kernels end at once,
/// and the third has started meanwhile (common/device/early_start.cuh). If no segment has more than `reach` segments
/// before it, there is only the third kernel.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/bounded_start.hpp"
#include "04_fused_chunk/simple_gla/dispatch/walks.hpp"
#include "04_fused_chunk/simple_gla/segment_state.cuh"
#include "common/ceil_div.hpp"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/carry_gaps.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/warm_up.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::simple_gla {
namespace {

using namespace tile;

/// Positions of a warm-up that are worth more than three kernels. Segments are whole, so it may be a segment longer.
constexpr int kLongWarmUp = 32 * kChunk;

/// Whether the state after the block's segment is wanted. All threads of the block call.
template <class Shape>
__device__ __forceinline__ bool is_wanted(const Bf16Arguments& a, const BlockPart<Shape>& part, const LaunchPlan& plan,
                                          int reach) {
  const int last = min(part.segment + 1 + reach, plan.segments - 1);
  bool is = false;
  for (int m = part.segment + 1 + warp_index(); m <= last; m += kStateBlock / 32) {
    const int limit = reach * (plan.length / kChunk);
    is |= warm_up_start(m * plan.length, limit, [&](int t) { return load_global(a.g.row(part.b, part.h, t)); }) ==
          kNoWarmUp;
  }
  return __syncthreads_or(is);
}

/// For every segment but the last, its decay and what it makes of a state of zeros, the first of the initial state, or a
/// gap. All chunks of these segments are whole. Grid (tiles of Dv of these segments, H, B).
/// @param states [B, H, segments - 1, Dk, Dv] @param decays [B, H, segments - 1], negative for a gap
template <class Shape>
__global__ void __launch_bounds__(kStateBlock, 2)
    segment_states_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps, LaunchPlan plan, int reach,
                          float* states, float* decays) {
  let_next_kernel_start();
  const BlockPart<Shape> part(extents_of(a), plan.length);
  const std::int64_t at = std::int64_t(part.head) * (plan.segments - 1) + part.segment;
  if (is_wanted(a, part, plan, reach)) {
    walk_for_state<Shape>(a, maps, part, false, states + at * a.Dk * a.Dv, decays + at, true);
  } else if (threadIdx.x == 0 && part.first_column == 0) {
    store_global(decays + at, -1);
  }
}

/// The states that all segments but the first start from, but for gaps.
template <class Shape>
const float* segment_starts(const Bf16Arguments& a, const LaunchPlan& plan, int reach) {
  const int count = plan.segments - 1;
  const std::int64_t segments = std::int64_t(a.B) * a.H * count;
  float* states = workspace<float>("simple_gla: states", std::size_t(segments * a.Dk * a.Dv));
  float* decays = workspace<float>("simple_gla: decays", std::size_t(segments));
  launch(segment_states_kernel<Shape>, {grid_of<Shape>(extents_of(a), count), kStateBlock, kSharedBytesForState<Shape>},
         a, chunk_maps(a), plan, reach, states, decays);
  carry_states(a.B, a.H, a.Dk, count, CarriedStates<WithGaps<SegmentDecay>>{{}, a.Dv, states, {{decays}}}, {}, true);
  return states;
}

}  // namespace

int warm_up_reach(const LaunchPlan& plan) {
  return ceil_div(kLongWarmUp, plan.length);
}

void hopper_walk(const Bf16Arguments& a, LaunchPlan plan, int reach) {
  if (plan.segments == 1) return register_scores(a);
  if (plan.segments - 1 > reach) {
    plan.starts = a.Dk <= 64 ? segment_starts<PanelShape<64, 64>>(a, plan, reach)
                             : segment_starts<PanelShape<128, 64>>(a, plan, reach);
    plan.starts_early = true;
  }
  walk_with_bounded_starts(a, plan, reach * (plan.length / kChunk));
}

}  // namespace tutorial::simple_gla
