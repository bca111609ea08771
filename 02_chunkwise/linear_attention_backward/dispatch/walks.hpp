#pragma once
/// @file
/// The kernels behind dispatch for the gradients, for every launch plan.

#include "02_chunkwise/linear_attention_backward.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::linear_attention {

/// Starts the kernels of a plan on current_stream(). They also compute the initial state of each segment (`starts`).
/// All three gradients have the same number of segments. Requires: an empty gradients_unsupported().
/// @throws CudaError if memory runs out or a launch is refused
void gradient_walks(const Bf16BackwardArguments&, const tile::LaunchPlan&);

/// The same by warpgroups, for Hopper, with the three gradients in one launch. Requires: an empty
/// warpgroup_mma_unsupported() for each of the three, and a plan with tiles of 64 columns.
void hopper_gradient_walks(const Bf16BackwardArguments&, const tile::LaunchPlan&);

}  // namespace tutorial::linear_attention
