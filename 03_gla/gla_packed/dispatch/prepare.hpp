#pragma once
/// @file
/// What prepare() leaves of the chunks of packed sequences.

#include "03_gla/gla/prepare.hpp"
#include "03_gla/packed.hpp"

namespace tutorial::gla {

/// The same as for sequences of one length, with chunks numbered as in common/tile/packed_chunks.cuh. Requires: an empty
/// subchunk_walk_unsupported().
/// @throws CudaError if the memory cannot be allocated or the launch is refused
Prepared prepare(const PackedBf16Arguments&);

}  // namespace tutorial::gla
