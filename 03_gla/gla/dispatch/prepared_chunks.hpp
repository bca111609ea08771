#pragma once
/// @file
/// What prepare() leaves (../prepare.hpp), where the number of a head's chunks does not follow from L alone.

#include <cstdint>

#include "03_gla/gla/prepare.hpp"

namespace tutorial::gla {

/// Reserves the workspace of prepare() for heads of so many chunks. It is valid until the next call of either.
/// @throws CudaError if the memory cannot be allocated
Prepared reserve_prepared(const Bf16Arguments&, int chunks);
/// Bytes of that workspace.
std::int64_t prepared_memory(const Bf16Arguments&, int chunks);

}  // namespace tutorial::gla
