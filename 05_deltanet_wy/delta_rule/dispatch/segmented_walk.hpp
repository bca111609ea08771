#pragma once
/// @file
/// The walk behind dispatch for GPUs without products of warpgroups: `fused` in the shared memory that every GPU has,
/// with normalised keys, and with segments that are walked at the same time.

#include <cstdint>

#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/delta_rule.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::delta_rule {

/// The widest keys whose sequences can be cut into segments.
inline constexpr int kWidestOfSegments = 128;

/// Starts its kernels on current_stream(): the start of each segment, if there are several; the walk of all segments.
/// Requires: an empty tile::tensor_core_unsupported(); a plan of make_launch_plan() with 64 columns, and with one
/// segment if Dk > kWidestOfSegments.
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void segmented_walk(const Bf16Arguments&, const Prepared&, const tile::LaunchPlan&);
/// Bytes of memory that it needs beside inputs, outputs and what prepare() fills.
std::int64_t segmented_walk_memory(const Bf16Arguments&, const tile::LaunchPlan&);
/// Bytes that prepare() and its kernels read from device memory or write to it (requirements.cu).
/// @param floats vectors of a chunk that a block reads beside T and P: the factors of the keys
std::int64_t segmented_walk_bytes_moved(const Bf16Arguments&, const tile::LaunchPlan&, int floats = 64);

}  // namespace tutorial::delta_rule
