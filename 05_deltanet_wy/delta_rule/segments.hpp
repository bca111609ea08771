#pragma once
/// @file
/// `segments` (13_segments.cu) with any number of segments, and how many there should be.

#include <cstdint>

#include "05_deltanet_wy/delta_rule.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::delta_rule {

/// Starts the kernels of `segments` on current_stream(): T and P; the start of each segment, if there are several; the
/// walk of all segments. Requires: an empty warpgroup_chain_unsupported(), and a plan of make_launch_plan() with 64
/// columns.
/// @throws CudaError if the memory is not there or a launch is refused
void walk_segments(const Bf16Arguments&, const tile::LaunchPlan&);
/// Bytes of memory that it needs beside inputs and outputs.
std::int64_t walk_segments_memory(const Bf16Arguments&, const tile::LaunchPlan&);
/// Bytes that its kernels ask global memory for or give to it (bytes_moved.cpp).
std::int64_t walk_segments_bytes_moved(const Bf16Arguments&, const tile::LaunchPlan&);

/// How `segments` cuts a sequence: as many segments as give each multiprocessor one block of the walk, as long as the
/// kernel that goes from one to the next is not what takes most of the time.
tile::LaunchPlan one_wave_of_segments(const Bf16Arguments&);
/// How dispatch does: into as many as take the least estimated time, often one. The numbers in the estimate were measured
/// on an H200 at Dk = Dv = 128.
tile::LaunchPlan fastest_segments(const Bf16Arguments&);
/// Microseconds by that estimate, without prepare_tiles().
double estimated_time(const Bf16Arguments&, const tile::LaunchPlan&);

}  // namespace tutorial::delta_rule
