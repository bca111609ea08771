#pragma once
/// @file
/// How `specialized_warps` divides the work.

#include "05_deltanet_wy/kda.hpp"

namespace tutorial::kda {

/// Columns of Dv in a block on this GPU: 32 or 64.
/// @throws CudaError if there is no device
int specialized_warps_columns(const Bf16Arguments&);

}  // namespace tutorial::kda
