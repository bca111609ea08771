#pragma once
/// @file
/// The walk of `register_scores` on packed sequences, for every plan.

#include "04_fused_chunk/packed_simple_gla.hpp"
#include "common/tile/packed_plan.hpp"

namespace tutorial::simple_gla {

/// Requires: an empty specialized_unsupported(), and a plan with tiles of 64 columns.
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void hopper_packed(const PackedBf16Arguments&, tile::PackedPlan);

}  // namespace tutorial::simple_gla
