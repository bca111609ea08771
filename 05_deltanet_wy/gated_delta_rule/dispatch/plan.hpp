#pragma once
/// @file
/// Which kernel of warpgroups is the fastest one, by delta_rule's estimates (delta_rule/dispatch/plan.hpp).

#include "05_deltanet_wy/delta_rule/dispatch/plan.hpp"
#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::gated_delta_rule {

/// A walk, and the microseconds that it takes by the estimate.
struct FastestWalk {
  delta_rule::Walk walk;
  double microseconds;
};

/// Which takes least by estimates: prepare_tiles() and the walk of fastest_segments(), or `cluster`, `three_blocks` or
/// `one_block`, where they support the problem. The numbers in the estimates were measured on an H200 at Dk = Dv = 128.
/// Requires: an empty warpgroups_unsupported().
FastestWalk fastest_walk(const Bf16Arguments&);

/// The segments of `cluster` that are to be tried before that walk, from zeros: as many as run at once. A single one if
/// that would not be faster, or if the question whether the gates allow it would take too much of that walk's time: 2 %
/// of `three_blocks`, 7 % of `segments`, as far as estimates go.
tile::LaunchPlan zero_start_segments(const Bf16Arguments&, const FastestWalk&);

}  // namespace tutorial::gated_delta_rule
