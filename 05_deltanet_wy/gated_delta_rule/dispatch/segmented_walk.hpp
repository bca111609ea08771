#pragma once
/// @file
/// delta_rule's walk in segments (delta_rule/dispatch/segmented_walk.cuh) with gates, for GPUs without products of
/// warpgroups.

#include <cstdint>
#include <optional>

#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "05_deltanet_wy/gated_delta_rule/prepare_gated.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::gated_delta_rule {

/// As delta_rule's functions of the same names.
void segmented_walk(const Bf16Arguments&, const Prepared&, const tile::LaunchPlan&);
/// Bytes of memory that it needs beside inputs, outputs and what prepare() fills.
std::int64_t segmented_walk_memory(const Bf16Arguments&, const tile::LaunchPlan&);
/// Bytes that prepare() and its kernels read from device memory or write to it.
std::int64_t segmented_walk_bytes_moved(const Bf16Arguments&, const tile::LaunchPlan&);

/// The segments with which it takes the least estimated time, which is delta_rule's estimate. Nothing if that is one
/// segment and `tensor_core` supports the problem. Requires: an empty tile::tensor_core_unsupported().
std::optional<tile::LaunchPlan> segmented_plan(const Bf16Arguments&);

}  // namespace tutorial::gated_delta_rule
