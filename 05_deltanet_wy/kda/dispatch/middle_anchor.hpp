#pragma once
/// @file
/// `middle_anchor` with any number of segments.

#include "05_deltanet_wy/kda.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::kda {

/// Starts the kernel with the segments of a plan, and then `segments` for the heads that it has not walked. Requires: an
/// empty one_anchor_unsupported(), and plans of make_launch_plan() with 64 columns.
/// @param exact the plan of `segments`
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void middle_anchor(const Bf16Arguments&, const tile::LaunchPlan& plan, const tile::LaunchPlan& exact);
/// As many segments as there are multiprocessors for them, 1 or more.
tile::LaunchPlan one_wave_of_blocks(const Bf16Arguments&);

}  // namespace tutorial::kda
