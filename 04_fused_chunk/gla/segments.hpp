#pragma once
/// @file
/// Stage 5 on segments of the sequence, for stage 6.

#include "03_gla/gla/spread.hpp"

namespace tutorial::fused_gla {

using gla::HalfArguments;
using gla::Spread;

/// With one segment one kernel; with more, one for the states of the segments, one that carries them on, and the same.
void one_kernel(const HalfArguments&, const Spread&);

}  // namespace tutorial::fused_gla
