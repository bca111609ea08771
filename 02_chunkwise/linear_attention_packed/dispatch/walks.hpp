#pragma once
/// @file
/// The kernels behind dispatch on packed sequences, for every plan.

#include "02_chunkwise/packed.hpp"
#include "common/tile/packed_plan.hpp"

namespace tutorial::linear_attention {

/// Those of `packed`. Requires: an empty tensor_core_unsupported().
/// @throws CudaError if memory runs out or a launch is refused
void packed_walk(const PackedBf16Arguments&, tile::PackedPlan);

/// The same by warpgroups. Requires: an empty warpgroup_mma_unsupported(), and a plan with tiles of 64 columns.
/// @throws CudaError if memory runs out or a launch is refused
void hopper_packed(const PackedBf16Arguments&, tile::PackedPlan);

}  // namespace tutorial::linear_attention
