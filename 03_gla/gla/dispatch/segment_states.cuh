#pragma once
/// @file
/// The states of segments on products of warpgroups, for the walk of `warpgroup_walk`.

#include "03_gla/gla/launch_plan.hpp"
#include "03_gla/gla/warpgroup_tiles.cuh"

namespace tutorial::gla {

/// Starts the kernel that leaves X_s and D_s (9_sequence_parallel.cu) of all segments but the last. Requires: an empty
/// warpgroup_walk_unsupported(), at least two segments.
/// @param count of these segments
/// @param states [B, H, count, Dk, Dv]
/// @param decays [B, H, count, Dk]
/// @throws CudaError if the launch is refused
void start_segment_states(const Bf16Arguments&, const PreparedMaps&, const LaunchPlan&, int count, float* states,
                          float* decays);

}  // namespace tutorial::gla
