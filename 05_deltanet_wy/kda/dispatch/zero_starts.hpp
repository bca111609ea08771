#pragma once
/// @file
/// The segments of `cluster` that need no past, and `segments` for the heads that do.

#include "05_deltanet_wy/packed_kda.hpp"
#include "common/device/walked_heads.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::kda {

/// Starts `cluster` with the segments of a plan, and then `segments` for the heads that it has not walked. Requires: an
/// empty one_anchor_unsupported(), and plans of make_launch_plan() with 64 columns.
/// @param plan of `cluster`
/// @param exact that of `segments`
void zero_starts(const Bf16Arguments&, const tile::LaunchPlan& plan, const tile::LaunchPlan& exact);
/// As many segments as clusters run at once, 1 or more.
tile::LaunchPlan one_wave_of_clusters(const Bf16Arguments&);

/// Starts `cluster` on current_stream(), with the segments of a plan.
/// @param heads where the kernel writes which segments it has walked
/// @throws CudaError if the launch is refused
void cluster(const Bf16Arguments&, const tile::LaunchPlan&, const WalkedHeads& heads);
/// Starts `cluster` for the heads that have not been walked, without segments. All heads if `heads.walked` is null.
void cluster_behind(const Bf16Arguments&, const WalkedHeads& heads);
/// The same for heads of packed sequences.
/// @param left [N, B, H]: which ones
void cluster_behind(const PackedBf16Arguments&, const int* left);

}  // namespace tutorial::kda
