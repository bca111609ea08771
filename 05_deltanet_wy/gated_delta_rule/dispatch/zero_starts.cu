/// @file
/// `zero_starts`: what to walk from zeros, and what to leave to the exact way.
///
/// Idea: `segments` computes what each segment does to a state, because the next one has to start from the result.
/// Where the gates of a chunk or two leave nothing of a state, nobody needs to know. Then the clusters of `cluster`
/// walk all segments of a head at once, in one kernel. They ask the gates first. The kernels of the exact way come
/// behind it, and walk the heads whose gates say no, if there are any.
///
/// Improves on: `segments` walks everything twice, and its last kernel waits for the first two.
/// Unchanged: the kernels.
/// Equation: that of `cluster`. A state of which at most 2^-24 would be left is taken for 0.
/// Shapes: those of `cluster`, and one int per segment.
/// Synchronization: the kernels of the exact way start early, and wait for the one before.
/// Work, bytes: those of `cluster`, and one or two chunks more per segment; or those of the exact way.
/// Bound by: as `cluster`.
/// Requires: what `cluster` requires.
/// Weakness: one segment that may not start from zeros makes its head take the exact way.
/// Sources: those of chunk/zero_starts.cuh.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "05_deltanet_wy/delta_rule/segments.hpp"
#include "05_deltanet_wy/gated_delta_rule/dispatch/segments.hpp"
#include "05_deltanet_wy/gated_delta_rule/dispatch/zero_starts.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::gated_delta_rule {

tile::LaunchPlan one_wave_of_clusters(const Bf16Arguments& a) {
  const std::int64_t clusters = std::int64_t(a.B) * a.H * ceil_div(a.Dv, 2 * tile::kWarpgroupColumns);
  return tile::make_launch_plan(a.L, tile::kWarpgroupColumns,
                                int(std::max<std::int64_t>(clusters_at_a_time(2) / clusters, 1)));
}

void zero_starts(const Bf16Arguments& a, const tile::LaunchPlan& plan,
                 const std::function<void(const Bf16Arguments&)>& exact_way) {
  const std::int64_t count = std::int64_t(a.B) * a.H * plan.segments;
  Bf16Arguments rest = a;
  rest.heads = {workspace<int>("gated_delta_rule: walked segments", std::size_t(count)), plan.segments};
  cluster(a, plan, rest.heads);
  end_part("from zeros");
  exact_way(rest);
}

void zero_starts(const Bf16Arguments& a) {
  zero_starts(a, one_wave_of_clusters(a),
              [](const Bf16Arguments& rest) { segments(rest, delta_rule::one_wave_of_segments(rest)); });
}

}  // namespace tutorial::gated_delta_rule
