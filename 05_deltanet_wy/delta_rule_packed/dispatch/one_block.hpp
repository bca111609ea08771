#pragma once
/// @file
/// `one_block` on packed sequences.

#include "05_deltanet_wy/packed_delta_rule.hpp"

namespace tutorial::delta_rule {

/// Starts the kernel on current_stream(). Requires: an empty warpgroup_chain_unsupported(), and up to 65535 sequences of
/// all batch entries.
/// @throws CudaError if memory runs out or a launch is refused
void one_block_packed(const PackedBf16Arguments&);

}  // namespace tutorial::delta_rule
