#pragma once
/// @file
/// How `specialized_warps` divides the work.

#include "05_deltanet_wy/delta_rule.hpp"

namespace tutorial::delta_rule {

/// Columns of Dv per block, 32 or 64. Requires: an empty specialized_warps_unsupported().
/// @throws CudaError if there is no device
int specialized_warps_columns(const Bf16Arguments&);

}  // namespace tutorial::delta_rule
