#pragma once
/// @file
/// How `one_kernel` is spread over the GPU.

#include "04_fused_chunk/fused_gla.hpp"

namespace tutorial::fused_gla {

/// Columns of Dv in a block: 64, or 128 where tiles of 64 would be more than one block per multiprocessor.
int one_kernel_columns(const Bf16Arguments&);
/// Rows of the keys whose loads are under way in a preparing warp.
inline constexpr int kAhead = 8;

}  // namespace tutorial::fused_gla
