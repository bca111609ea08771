#pragma once
/// @file
/// `materialized` on packed sequences (gla_backward/dispatch/materialized.cu).

#include <cstdint>

#include "03_gla/packed_backward.hpp"

namespace tutorial::gla {

/// All its kernels, with the states of a sequence in a block, the longest first. Requires: an empty
/// materialized_backward_unsupported().
/// @throws CudaError if memory runs out or a launch is refused
void packed_materialized_backward(const PackedBf16BackwardArguments&);
/// Bytes of what the kernels leave for each other.
std::int64_t packed_materialized_backward_memory(const PackedBf16BackwardArguments&);

}  // namespace tutorial::gla
