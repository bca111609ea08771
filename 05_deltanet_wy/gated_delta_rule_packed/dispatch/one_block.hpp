#pragma once
/// @file
/// `one_block` on packed sequences, with any length of segments.

#include "05_deltanet_wy/packed_gated_delta_rule.hpp"
#include "common/tile/packed_plan.hpp"

namespace tutorial::gated_delta_rule {

/// Starts the kernel on current_stream(), and if a sequence may be cut, the same kernel for heads that it leaves. Requires:
/// an empty cluster_unsupported(), and up to 65535 segments of all batch entries.
/// @throws CudaError if memory runs out or a launch is refused
void one_block_packed(const PackedBf16Arguments&, const tile::PackedPlan&);

}  // namespace tutorial::gated_delta_rule
