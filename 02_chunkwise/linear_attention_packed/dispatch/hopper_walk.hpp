#pragma once
/// @file
/// The kernels behind dispatch on packed sequences, on Hopper.

#include "02_chunkwise/packed.hpp"
#include "common/tile/packed_plan.hpp"

namespace tutorial::linear_attention {

/// `packed` by warpgroups. Requires: an empty warpgroup_mma_unsupported(), and a plan with tiles of 64 columns.
/// @throws CudaError if memory runs out or a launch is refused
void hopper_packed(const PackedBf16Arguments&, tile::PackedPlan);

}  // namespace tutorial::linear_attention
