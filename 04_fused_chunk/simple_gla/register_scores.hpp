#pragma once
/// @file
/// The kernel of `register_scores` in a plan, for the walks of dispatch.

#include "04_fused_chunk/simple_gla.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::simple_gla {

/// Starts the kernel in a plan of tiles of 64 columns. If the plan has several segments, its `starts` have been
/// computed. Requires: an empty specialized_unsupported().
/// @throws CudaError if a launch is refused
void walk_with_register_scores(const Bf16Arguments&, const tile::LaunchPlan&);

}  // namespace tutorial::simple_gla
