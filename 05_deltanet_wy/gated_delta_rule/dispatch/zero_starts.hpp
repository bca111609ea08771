#pragma once
/// @file
/// `zero_starts`: the segments of `cluster` that need no past, and another kernel for the heads that do.

#include <cstdint>
#include <functional>

#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "common/device/walked_heads.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::gated_delta_rule {

/// Starts `cluster` with the segments of a plan, and then `exact_way` for the heads that it has not walked. Requires:
/// what `cluster` requires.
void zero_starts(const Bf16Arguments&, const tile::LaunchPlan&,
                 const std::function<void(const Bf16Arguments&)>& exact_way);
/// As many segments as clusters run at once, 1 or more.
tile::LaunchPlan one_wave_of_clusters(const Bf16Arguments&);

/// Starts `cluster` on current_stream(). Requires: an empty cluster_unsupported(), and a plan of make_launch_plan()
/// with 64 columns.
/// @param heads where the kernel writes which segments it has walked. Null: the plan has one segment
/// @throws CudaError if the launch is refused
void cluster(const Bf16Arguments&, const tile::LaunchPlan&, const WalkedHeads& heads);

}  // namespace tutorial::gated_delta_rule
