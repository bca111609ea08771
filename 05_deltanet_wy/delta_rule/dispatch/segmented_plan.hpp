#pragma once
/// @file
/// What dispatch chooses between two walks on mma: dispatch/specialized_warps.cu and dispatch/segmented_walk.cu, the latter with some
/// number of segments.

#include <optional>

#include "05_deltanet_wy/delta_rule.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::delta_rule {

/// The segments with which segmented_walk() takes the least estimated time, often one. Requires: an empty
/// tile::tensor_core_unsupported().
tile::LaunchPlan fastest_segmented_plan(const Bf16Arguments&);
/// The same. Nothing if `specialized_warps` is supported, and there is one segment or it takes less.
std::optional<tile::LaunchPlan> segmented_plan(const Bf16Arguments&);

/// Microseconds of segmented_walk() by that estimate.
double segmented_walk_time(const Bf16Arguments&, const tile::LaunchPlan&);
/// Microseconds of `specialized_warps` by that estimate.
double specialized_warps_time(const Bf16Arguments&);

}  // namespace tutorial::delta_rule
