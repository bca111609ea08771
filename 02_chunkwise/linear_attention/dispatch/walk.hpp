#pragma once
/// @file
/// The kernels behind dispatch, for every launch plan.

#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/normalized.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::linear_attention {

/// Starts the kernels of a plan on current_stream(). They also compute the initial state of each segment (`starts`),
/// and of z if there is a normaliser. Requires: an empty tile::tensor_core_unsupported().
/// @param normalizer null: o is not normalised
/// @throws CudaError if memory runs out or a launch is refused
void walk(const Bf16Arguments&, const tile::LaunchPlan&, const Normalizer* normalizer = nullptr);

/// The same by warpgroups, for Hopper. Requires: an empty warpgroup_mma_unsupported(), and a plan with tiles of 64
/// columns.
void hopper_walk(const Bf16Arguments&, const tile::LaunchPlan&, const Normalizer* normalizer = nullptr);

}  // namespace tutorial::linear_attention
