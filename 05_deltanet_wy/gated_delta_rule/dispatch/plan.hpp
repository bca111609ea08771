#pragma once
/// @file
/// Which kernel of warpgroups is the fastest one, by delta_rule's estimates (delta_rule/dispatch/plan.hpp).

#include "05_deltanet_wy/delta_rule/dispatch/plan.hpp"
#include "05_deltanet_wy/gated_delta_rule.hpp"

namespace tutorial::gated_delta_rule {

/// Which takes least by estimates: prepare_tiles() and the walk of fastest_segments(), or `cluster` or `three_blocks`,
/// where they support the problem. The numbers in the estimates were measured on an H200 at Dk = Dv = 128. Requires: an
/// empty warpgroups_unsupported().
delta_rule::Walk fastest_walk(const Bf16Arguments&);

}  // namespace tutorial::gated_delta_rule
