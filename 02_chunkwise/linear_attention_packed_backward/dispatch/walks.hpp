#pragma once
/// @file
/// The kernels behind dispatch for the gradients of packed sequences.

#include "02_chunkwise/packed_backward.hpp"
#include "common/tile/packed_plan.hpp"

namespace tutorial::linear_attention {

/// Starts the kernels of a plan, of which `segments` and `starts` are filled in here. Requires: an empty
/// gradients_unsupported() and packed_plan_unsupported().
/// @throws CudaError if memory runs out or a launch is refused
void packed_gradient_walks(const PackedBf16BackwardArguments&, tile::PackedPlan);

}  // namespace tutorial::linear_attention
