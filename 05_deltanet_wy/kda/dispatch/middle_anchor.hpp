#pragma once
/// @file
/// `middle_anchor` with any number of segments.

#include "05_deltanet_wy/packed_kda.hpp"
#include "common/tile/launch_plan.hpp"
#include "common/tile/packed_plan.hpp"

namespace tutorial::kda {

/// Starts the kernel with the segments of a plan, and the kernels for the heads that it leaves. Requires: an empty
/// one_anchor_unsupported(), and a plan of make_launch_plan() with 64 columns.
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void middle_anchor(const Bf16Arguments&, const tile::LaunchPlan&);
/// As many segments as there are multiprocessors for them, 1 or more.
tile::LaunchPlan one_wave_of_blocks(const Bf16Arguments&);
/// That of `segments` for the heads that need their past: one segment where more gain little.
tile::LaunchPlan plan_of_past(const Bf16Arguments&);
/// The same for packed sequences, in segments of the plan's length; `cluster` walks the heads of sequences that it leaves.
/// Requires: an empty one_anchor_unsupported(), and up to 65535 segments of all batch entries.
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void middle_anchor_packed(const PackedBf16Arguments&, const tile::PackedPlan&);

}  // namespace tutorial::kda
