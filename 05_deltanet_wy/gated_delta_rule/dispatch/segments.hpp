#pragma once
/// @file
/// `segments` with any number of segments. The choices of that number are delta_rule's.

#include <cstdint>

#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::gated_delta_rule {

/// As delta_rule's function of the same name.
void segments(const Bf16Arguments&, const tile::LaunchPlan&);
/// Bytes of memory that it needs beside inputs and outputs.
std::int64_t segments_memory(const Bf16Arguments&, const tile::LaunchPlan&);
/// Bytes that its kernels read from device memory or write to it.
std::int64_t segments_bytes_moved(const Bf16Arguments&, const tile::LaunchPlan&);

}  // namespace tutorial::gated_delta_rule
