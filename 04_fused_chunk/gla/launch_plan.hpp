#pragma once
/// @file
/// How the kernels of `one_kernel` and of the stages after it are spread over the GPU.

#include "04_fused_chunk/fused_gla.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::fused_gla {

/// Columns of Dv in a block: 64, or 128 if tiles of 64 would give more than one block per multiprocessor.
int one_kernel_columns(const Bf16Arguments&);
/// Rows of the keys whose loads are in flight in a preparing warp.
inline constexpr int kAhead = 8;

using tile::LaunchPlan;

/// `segments` with a plan, whose `starts` are computed first if they are null. Requires: an empty score_levels_unsupported().
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void walk_segments(const Bf16Arguments&, LaunchPlan);
/// The same with `starts` from kernels that read no more of a segment than gates let matter.
void walk_bounded_segments(const Bf16Arguments&, LaunchPlan);
/// The plan of `segments`: that of the least estimated time.
LaunchPlan segments_plan(const Bf16Arguments&);
/// The estimated time of `segments` with a plan, in microseconds.
double segments_time(const Bf16Arguments&, const LaunchPlan&);

}  // namespace tutorial::fused_gla
