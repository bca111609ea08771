#pragma once
/// @file
/// The estimates by which dispatch chooses among the walks of warpgroups, and the number of segments. The gated operator
/// takes them with numbers of its own. All numbers were measured on an H200 at Dk = Dv = 128.

#include "05_deltanet_wy/delta_rule.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::delta_rule {

/// Into how many segments dispatch cuts a sequence: as many as take the least estimated time, often one.
tile::LaunchPlan fastest_segments(const Bf16Arguments&);
/// Microseconds by that estimate, without the kernel that prepares.
/// @param inverse_bytes,score_bytes of T and of P in memory, for a position; those of `segments`, if not given
double estimated_time(const Bf16Arguments&, const tile::LaunchPlan&, int inverse_bytes = 192, int score_bytes = 0);
/// The speed at which the bytes of these kernels come, as a multiple of a copy's.
constexpr double kBytesSpeed = 0.94;
/// What a kernel costs that computes T and P beside the walk, in clocks.
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
/// Which takes least by such estimates: prepare_inverses() and the walk of fastest_segments(), or one of the four that
/// are a single kernel. Requires: an empty warpgroup_chain_unsupported().
Walk fastest_walk(const Bf16Arguments&);

}  // namespace tutorial::delta_rule
