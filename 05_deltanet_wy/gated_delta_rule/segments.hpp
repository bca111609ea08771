#pragma once
/// @file
/// `segments` (6_segments.cu) with any number of segments. The choices of that number are delta_rule's. And which stage
/// is the fastest one (fastest_walk.cpp).

#include <cstdint>

#include "05_deltanet_wy/delta_rule/segments.hpp"
#include "05_deltanet_wy/gated_delta_rule.hpp"

namespace tutorial::gated_delta_rule {

/// As delta_rule's functions of the same names.
void walk_segments(const Bf16Arguments&, const tile::LaunchPlan&);
/// Bytes of memory that it needs beside inputs and outputs.
std::int64_t walk_segments_memory(const Bf16Arguments&, const tile::LaunchPlan&);
/// Bytes that its kernels read from global memory or write to it.
std::int64_t walk_segments_bytes_moved(const Bf16Arguments&, const tile::LaunchPlan&);

/// Which takes least by estimates: prepare_tiles() and the walk of fastest_segments(), or `cluster` or `three_blocks`,
/// where they support the problem. The numbers in the estimates were measured on an H200 at Dk = Dv = 128. Requires: an
/// empty warpgroup_chain_unsupported().
delta_rule::Walk fastest_walk(const Bf16Arguments&);

}  // namespace tutorial::gated_delta_rule
