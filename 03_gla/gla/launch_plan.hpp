#pragma once
/// @file
/// How the walk is spread over the GPU, and what it needs: for `segments` and dispatch.

#include "03_gla/gla.hpp"
#include "03_gla/gla/prepare.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::gla {

using tile::LaunchPlan;

/// The plan with its `starts`. If there are several segments, the first two kernels of `segments` compute
/// them. Requires: an empty subchunk_walk_unsupported().
/// @throws CudaError if the memory cannot be allocated or a launch is refused
LaunchPlan with_starts(const Bf16Arguments&, const Prepared&, LaunchPlan);
/// prepare(), with_starts() and the walk of `segments`; requirements and errors as there.
void walk(const Bf16Arguments&, const LaunchPlan&);
/// The same with the walk of `warpgroup_walk`; the plan has tiles of 64 columns. Requires: an empty
/// warpgroup_walk_unsupported().
void walk_on_warpgroups(const Bf16Arguments&, const LaunchPlan&);
/// Bytes of its workspace.
std::int64_t walk_memory(const Bf16Arguments&, const LaunchPlan&);
/// Bytes that its kernels read from device memory or write to it, even if a cache serves them.
std::int64_t walk_bytes_moved(const Bf16Arguments&, const LaunchPlan&);

}  // namespace tutorial::gla
