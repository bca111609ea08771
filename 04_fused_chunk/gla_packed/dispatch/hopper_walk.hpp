#pragma once
/// @file
/// The kernels of `segments` on packed sequences, for every plan.

#include "04_fused_chunk/packed_gla.hpp"
#include "common/tile/packed_plan.hpp"

namespace tutorial::fused_gla {

/// Requires: an empty score_levels_unsupported().
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void hopper_packed(const PackedBf16Arguments&, tile::PackedPlan);
/// Bytes of its workspace.
std::int64_t hopper_packed_memory(const PackedBf16Arguments&, const tile::PackedPlan&);

}  // namespace tutorial::fused_gla
