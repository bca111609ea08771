#pragma once
/// @file
/// The stage `bounded_start`, and its kernel in a plan, for dispatch. As the stages in simple_gla.hpp.

#include <string>

#include "04_fused_chunk/simple_gla.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::simple_gla {

/// GPU, Hopper: segments at once; each starts from zeros, as much earlier as its gates want. Requires: an empty
/// specialized_unsupported().
void bounded_start(const Bf16Arguments&);
/// The number of segments.
std::string bounded_start_note(const Bf16Arguments&);
/// The plan of `bounded_start`: as many segments as give each multiprocessor one block.
tile::LaunchPlan bounded_start_plan(const Bf16Arguments&);

/// Starts the kernel in a plan of tiles of 64 columns. Requires: an empty specialized_unsupported().
/// @param limit chunks that a warm-up has at most. A segment that needs more starts from the plan's `starts`. They may be
/// null if no segment has more than `limit` chunks before it.
/// @throws CudaError if a launch is refused
void walk_with_bounded_starts(const Bf16Arguments&, const tile::LaunchPlan&, int limit);

}  // namespace tutorial::simple_gla
