#pragma once
/// @file
/// How `one_kernel` is spread over the GPU.

#include "04_fused_chunk/fused_gla.hpp"

namespace tutorial::fused_gla {

/// Columns of Dv in a block: 64, or 128 if tiles of 64 would give more than one block per multiprocessor.
int one_kernel_columns(const Bf16Arguments&);
/// Rows of the keys whose loads are in flight in a preparing warp.
inline constexpr int kAhead = 8;

}  // namespace tutorial::fused_gla
