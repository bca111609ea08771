#pragma once
/// @file
/// `segments` on packed sequences, with `one_block` as its walk.

#include <cstdint>

#include "05_deltanet_wy/packed_delta_rule.hpp"
#include "common/tile/packed_plan.hpp"

namespace tutorial::delta_rule {

/// Starts the kernels on current_stream(). Requires: an empty warpgroup_chain_unsupported(), B = 1, a plan with states,
/// and up to 65535 segments.
/// @param plan without its list
/// @throws CudaError if memory runs out or a launch is refused
void segments_packed(const PackedBf16Arguments&, tile::PackedPlan plan);
/// Bytes of memory that they need beside inputs and outputs.
std::int64_t segments_packed_memory(const PackedBf16Arguments&, const tile::PackedPlan&);

}  // namespace tutorial::delta_rule
