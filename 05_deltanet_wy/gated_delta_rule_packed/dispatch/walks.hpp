#pragma once
/// @file
/// The kernels behind dispatch on packed sequences.

#include <cstdint>
#include <string>

#include "05_deltanet_wy/packed_gated_delta_rule.hpp"
#include "common/tile/packed_plan.hpp"

namespace tutorial::gated_delta_rule {

/// Starts `one_block` on current_stream(), and if a sequence may be cut, once more for heads that it leaves. Requires: an
/// empty cluster_unsupported(), and up to 65535 segments of all batch entries.
/// @throws CudaError if memory runs out or a launch is refused
void one_block_packed(const PackedBf16Arguments&, const tile::PackedPlan&);

/// Starts prepare() for all chunks and the walk on mma (delta_rule/dispatch/segmented_walk.cuh), with a block for each
/// sequence of a head and 64 columns. Requires: an empty walk_packed_unsupported().
/// @throws CudaError if memory runs out or a launch is refused
void walk_packed(const PackedBf16Arguments&);
/// Why it cannot run, as a sentence; empty if it can.
std::string walk_packed_unsupported(const PackedBf16Arguments&);
/// Bytes of memory that it needs beside inputs and outputs.
std::int64_t walk_packed_memory(const PackedBf16Arguments&);

}  // namespace tutorial::gated_delta_rule
