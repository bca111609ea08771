#pragma once
/// @file
/// `segments` with any number of segments, and its own choice of that number.

#include "05_deltanet_wy/delta_rule.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::delta_rule {

/// Starts the kernels of `segments` on current_stream(): T; the start of each segment, if there are several; the walk of
/// all segments. Requires: an empty warpgroup_chain_unsupported(), and a plan of make_launch_plan() with 64 columns.
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void segments(const Bf16Arguments&, const tile::LaunchPlan&);

/// How the stage cuts a sequence: into as many segments as give each multiprocessor one block of the walk, unless the
/// kernel that goes from segment to segment would then take most of the time.
tile::LaunchPlan one_wave_of_segments(const Bf16Arguments&);

}  // namespace tutorial::delta_rule
