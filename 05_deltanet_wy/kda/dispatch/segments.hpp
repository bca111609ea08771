#pragma once
/// @file
/// `segments` with any number of segments, and dispatch's choice of that number.

#include <cstdint>

#include "05_deltanet_wy/kda.hpp"
#include "common/device/walked_heads.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::kda {

/// Starts the two kernels on current_stream(), for the heads that have not been walked. Requires: an empty
/// one_anchor_unsupported(), and a plan of make_launch_plan() with 64 columns.
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void segments(const Bf16Arguments&, const tile::LaunchPlan&, const WalkedHeads& = {});

/// The plan whose blocks walk the fewest chunks one after the other, if a segment needs two chunks before it.
tile::LaunchPlan shortest_segments(const Bf16Arguments&);
/// The chunks that the blocks of a plan walk one after the other, so counted.
std::int64_t chunks_in_line(const Bf16Arguments&, const tile::LaunchPlan&);

}  // namespace tutorial::kda
