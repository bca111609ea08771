#pragma once
/// @file
/// The segments of `segments`, from the end of each of which the sum for dg starts anew.

#include <cstdint>

#include "04_fused_chunk/simple_gla_backward.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::simple_gla {

inline constexpr int kLongest = 2048;  ///< positions of a segment: with more, dg loses digits

/// At least as many segments as fill the GPU with blocks of `segments`, none longer than kLongest.
tile::LaunchPlan plan_of(const Bf16BackwardArguments&);
/// Bytes of the row products and of all that stands at the borders of segments.
std::int64_t segments_memory(const Bf16BackwardArguments&, const tile::LaunchPlan&);

}  // namespace tutorial::simple_gla
