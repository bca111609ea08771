/// @file
/// `segments` where the kernels before the walk read no more of a segment than gates let matter.
///
/// In `segments` the first kernel reads a segment from its beginning. But the state that it leaves is what its last chunks
/// have put into it, if the gates of these chunks multiply to at most 2^-24 in every channel (common/tile/warm_up.cuh).
/// Then the block reads these chunks alone, and gives 0 for the decay of the segment: nothing crosses it. The second
/// kernel, which carries states from segment to segment, ends at once where all decays are 0. Each block asks the gates of
/// its own segment, so one channel that never forgets makes its own head take the exact way and no other.
///
/// `bounded_start` of simple_gla has the warm-up in the walk and saves the two launches. Here a chunk of the walk takes
/// more than twice as long as one of the kernel for the states.

#include <cuda_runtime.h>

#include "04_fused_chunk/fused_gla.hpp"
#include "04_fused_chunk/gla/dispatch/bounded_begin.cuh"
#include "04_fused_chunk/gla/launch_plan.hpp"
#include "04_fused_chunk/gla/segment_starts.cuh"
#include "common/tile/carry_gaps.cuh"

namespace tutorial::fused_gla {
namespace {

template <class Shape>
const float* bounded_starts(const Bf16Arguments& a, const LaunchPlan& plan) {
  return segment_starts<Shape, BoundedBegin<Shape>, WithZeros<RowDecay<kSubChunks>>>(a, plan);
}

}  // namespace

void walk_bounded_segments(const Bf16Arguments& a, LaunchPlan plan) {
  if (plan.segments > 1) {
    const bool is_wide = plan.columns == 128;
    if (a.Dk <= 64) {
      plan.starts =
          is_wide ? bounded_starts<PanelShape<64, 128>>(a, plan) : bounded_starts<PanelShape<64, 64>>(a, plan);
    } else {
      plan.starts =
          is_wide ? bounded_starts<PanelShape<128, 128>>(a, plan) : bounded_starts<PanelShape<128, 64>>(a, plan);
    }
  }
  walk_segments(a, plan);
}

}  // namespace tutorial::fused_gla
