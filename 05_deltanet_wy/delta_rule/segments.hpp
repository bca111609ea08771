#pragma once
/// @file
/// `segments` (13_segments.cu) and `scores_in_walk` (18_scores_in_walk.cu) with any number of segments, and two choices
/// of that number.

#include <cstdint>

#include "05_deltanet_wy/delta_rule.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::delta_rule {

/// Starts the kernels of `segments` on current_stream(): T and P; the start of each segment, if there are several; the
/// walk of all segments. Requires: an empty warpgroup_chain_unsupported(), and a plan of make_launch_plan() with 64
/// columns.
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void walk_segments(const Bf16Arguments&, const tile::LaunchPlan&);
/// Bytes of memory that it needs beside inputs and outputs.
std::int64_t walk_segments_memory(const Bf16Arguments&, const tile::LaunchPlan&);
/// Bytes that its kernels read from global memory or write to it (bytes_moved.cpp).
std::int64_t walk_segments_bytes_moved(const Bf16Arguments&, const tile::LaunchPlan&);

/// The same for `scores_in_walk`: its first kernel prepares T alone.
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void scores_in_walk(const Bf16Arguments&, const tile::LaunchPlan&);
/// Bytes of memory that it needs beside inputs and outputs.
std::int64_t scores_in_walk_memory(const Bf16Arguments&, const tile::LaunchPlan&);
/// Bytes that its kernels read from global memory or write to it.
std::int64_t scores_in_walk_bytes_moved(const Bf16Arguments&, const tile::LaunchPlan&);

/// How both stages cut a sequence: into as many segments as give each multiprocessor one block of the walk, unless the
/// kernel that goes from segment to segment would then take most of the time.
tile::LaunchPlan one_wave_of_segments(const Bf16Arguments&);
/// How dispatch cuts a sequence: into as many segments as take the least estimated time, often one. The numbers in the
/// estimate were measured on an H200 at Dk = Dv = 128.
tile::LaunchPlan fastest_segments(const Bf16Arguments&);
/// Microseconds by that estimate, without the kernel that prepares.
/// @param inverse_bytes,score_bytes of T and of P in memory, for a position; those of `scores_in_walk`, if not given
double estimated_time(const Bf16Arguments&, const tile::LaunchPlan&, int inverse_bytes = 192, int score_bytes = 0);
/// What a kernel costs that computes T and P beside the walk, in microseconds.
struct WalkCosts {
  double chunk;  ///< of a chunk
  double first;  ///< until T and P of the first one are there
  int blocks;    ///< of a cluster, 1 to 3
  int columns;   ///< of Dv that a cluster has
};
/// Microseconds of such a kernel by that estimate.
double estimated_time(const Bf16Arguments&, const WalkCosts&);
/// What walks over the chunks on Hopper.
enum class Walk { segments, one_kernel, cluster, three_blocks, one_block };
/// Which takes least by such estimates: prepare_inverses() and the walk of fastest_segments(), or one of the four
/// stages that are a single kernel. Requires: an empty warpgroup_chain_unsupported().
Walk fastest_walk(const Bf16Arguments&);

}  // namespace tutorial::delta_rule
