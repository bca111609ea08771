#pragma once
/// @file
/// The kernels behind dispatch for the gradients of packed sequences.

#include <cstdint>

#include "04_fused_chunk/packed_backward.hpp"
#include "common/tile/packed_plan.hpp"

namespace tutorial::simple_gla {

/// Starts the kernels of a plan, whose `segments` are filled in here. Requires: an empty pipelined_backward_unsupported()
/// and packed_plan_unsupported(), and segments of at most kLongest positions.
/// @throws CudaError if memory runs out or a launch is refused
void packed_gradient_walks(const PackedBf16BackwardArguments&, tile::PackedPlan);
/// The bytes of all that they leave in device memory.
std::int64_t packed_gradient_walks_memory(const PackedBf16BackwardArguments&, const tile::PackedPlan&);

}  // namespace tutorial::simple_gla
