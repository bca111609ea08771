#pragma once
/// @file
/// The walks that dispatch chooses from, each in a plan: how it is spread over the GPU.

#include "04_fused_chunk/simple_gla.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::simple_gla {

using tile::LaunchPlan;

/// Variant: `fused` on as many segments of the sequence at once as fill the GPU.
void segments(const Bf16Arguments&);
/// Bytes of its workspace.
std::int64_t segments_memory(const Bf16Arguments&);
/// Bytes that its kernels read from device memory or write to it, even if a cache serves them.
std::int64_t segments_bytes_moved(const Bf16Arguments&);

/// Starts the kernels that compute the `starts` of a plan of two segments or more, in a workspace, and returns them.
/// Requires: an empty fused_unsupported().
/// @throws CudaError if the memory cannot be allocated or a launch is refused
const float* segment_starts(const Bf16Arguments&, const LaunchPlan&);
/// Starts the kernels of `segments` in this plan, which also compute its `starts`. With one segment there is
/// one kernel, that of `fused`. Requires: an empty fused_unsupported().
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void walk(const Bf16Arguments&, LaunchPlan);
/// Bytes of its workspace.
std::int64_t walk_memory(const Bf16Arguments&, const LaunchPlan&);
/// Bytes that its kernels read from device memory or write to it, even if a cache serves them.
std::int64_t walk_bytes_moved(const Bf16Arguments&, const LaunchPlan&);

/// The kernel of `bounded_start`, after those that compute what it needs for heads that forget nothing, or that of
/// `register_scores` for one segment. The plan's `starts` and `starts_early` are not used. Requires: an empty
/// specialized_unsupported().
/// @param reach segments that a warm-up may go over; with 0 all heads take the exact way
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void hopper_walk(const Bf16Arguments&, LaunchPlan, int reach);
/// The reach that dispatch takes.
int warm_up_reach(const LaunchPlan&);
/// The plan of the least estimated time for it, if gates forget.
LaunchPlan hopper_plan(const tile::Extents&);
/// Bytes of its workspace.
std::int64_t hopper_walk_memory(const Bf16Arguments&, const LaunchPlan&);
/// As walk_bytes_moved(); -1 with several segments, where they depend on the gates.
std::int64_t hopper_walk_bytes_moved(const Bf16Arguments&, const LaunchPlan&);

}  // namespace tutorial::simple_gla
