/// @file
/// `zero_starts`: the segments of `cluster` from zeros, and the exact way for the heads that need their past.
///
/// Idea: as in gated_delta_rule/dispatch/zero_starts.cu. With strong gates, such as exp(-5 sigmoid(x)), a chunk leaves
/// nothing of a state, and gates and keys alone show that it does. So `cluster`, which takes nothing through memory,
/// walks all segments at once. `segments` comes behind it for the heads whose gates say no. It knows the chunks'
/// bounds, and finds starts where gates are too weak for a look at them.
///
/// Improves on: `segments` takes the rows through memory.
/// Unchanged: the kernels.
/// Equation: that of `cluster`. A state of which at most 2^-24 would be left is taken for 0.
/// Shapes: those of `segments`, and one int per segment.
/// Synchronization: the kernels of `segments` start early, and wait for the one before.
/// Work, bytes: those of `cluster`, and a chunk or two more per segment; or those of `segments`.
/// Bound by: as `cluster`.
/// Requires: what `one_anchor` requires.
/// Weakness: one segment that may not start from zeros gives its head to `segments`.
/// Sources: those of chunk/zero_starts.cuh.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "05_deltanet_wy/kda/dispatch/segments.hpp"
#include "05_deltanet_wy/kda/dispatch/zero_starts.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::kda {

tile::LaunchPlan one_wave_of_clusters(const Bf16Arguments& a) {
  const std::int64_t clusters = std::int64_t(a.B) * a.H * ceil_div(a.Dv, 2 * tile::kWarpgroupColumns);
  return tile::make_launch_plan(a.L, tile::kWarpgroupColumns,
                                int(std::max<std::int64_t>(clusters_at_a_time(2) / clusters, 1)));
}

void zero_starts(const Bf16Arguments& a, const tile::LaunchPlan& plan, const tile::LaunchPlan& exact) {
  const std::int64_t count = std::int64_t(a.B) * a.H * plan.segments;
  const WalkedHeads heads{workspace<int>("kda: walked segments", std::size_t(count)), plan.segments};
  cluster(a, plan, heads);
  end_part("from zeros");
  segments(a, exact, heads);
}

void zero_starts(const Bf16Arguments& a) {
  zero_starts(a, one_wave_of_clusters(a), shortest_segments(a));
}

}  // namespace tutorial::kda
