#pragma once
/// @file
/// Stage 5 on segments of the sequence.

#include "03_gla/gla/spread.hpp"
#include "04_fused_chunk/fused_gla.hpp"

namespace tutorial::fused_gla {

using gla::Spread;

/// With one segment one kernel; with more, one for the states of the segments, one that carries them on, and the same.
/// Errors and limits as one_kernel() without a spread.
void one_kernel(const HalfArguments&, const Spread&);

}  // namespace tutorial::fused_gla
