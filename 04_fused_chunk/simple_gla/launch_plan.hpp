#pragma once
/// @file
/// How the walk is spread over the GPU, and what it needs, for `sequence_parallel`, `specialized`, `register_scores`
/// and dispatch.

#include "04_fused_chunk/simple_gla.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::simple_gla {

using tile::LaunchPlan;

/// Starts the kernels that compute the `starts` of a plan of two segments or more, in a workspace, and returns them.
/// Requires: an empty fused_unsupported().
/// @throws CudaError if the memory cannot be allocated or a launch is refused
const float* segment_starts(const Bf16Arguments&, const LaunchPlan&);
/// Starts the kernels of `sequence_parallel` in this plan, which also compute its `starts`. With one segment there is
/// one kernel, that of `fused`. Requires: an empty fused_unsupported().
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void walk(const Bf16Arguments&, LaunchPlan);
/// Bytes of its workspace.
std::int64_t walk_memory(const Bf16Arguments&, const LaunchPlan&);
/// Bytes that its kernels read from global memory or write to it, even if a cache serves them.
std::int64_t walk_bytes_moved(const Bf16Arguments&, const LaunchPlan&);

/// Starts the kernel of `specialized` in a plan of tiles of 64 columns. If the plan has several segments, its `starts`
/// have been computed. Requires: an empty specialized_unsupported().
/// @throws CudaError if a launch is refused
void walk_on_warpgroups(const Bf16Arguments&, const LaunchPlan&);
/// The same by the kernel of `register_scores`.
/// @throws CudaError if a launch is refused
void walk_with_register_scores(const Bf16Arguments&, const LaunchPlan&);
/// walk_with_register_scores() after the kernels that compute the plan's `starts`. Its workspace is that of walk().
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void hopper_walk(const Bf16Arguments&, LaunchPlan);
/// The plan of the least estimated time for it.
LaunchPlan hopper_plan(const tile::Extents&);
/// As walk_bytes_moved().
std::int64_t hopper_walk_bytes_moved(const Bf16Arguments&, const LaunchPlan&);

/// What dispatch chooses if two_kernels_unsupported() is empty.
struct Choice {
  /// The ways to compute a problem.
  enum Kernels {
    kWalk,        ///< walk(): `fused`, or `sequence_parallel`
    kTwoKernels,  ///< `two_kernels`
    kHopperWalk,  ///< hopper_walk(): `register_scores`
    kRolesWalk    ///< roles_walk()
  };
  Kernels kernels;  ///< the one to take
  LaunchPlan plan;  ///< of a walk
};
/// What dispatch chooses for the problem.
Choice dispatch_choice(const Bf16Arguments&);

}  // namespace tutorial::simple_gla
