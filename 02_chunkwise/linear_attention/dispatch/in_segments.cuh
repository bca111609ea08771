#pragma once
/// @file
/// The three kernels of a walk in segments, or the single kernel of a walk without segments.

#include <cstdint>

#include "02_chunkwise/linear_attention/dispatch/walk.hpp"
#include "common/device/workspace.hpp"
#include "common/tile/carry.cuh"

namespace tutorial::linear_attention {
namespace {

/// Starts the kernels of a plan. If there are segments, it first starts the kernel that computes their states, and
/// carry_states().
/// @tparam kNormalized whether `normalizer` is used
/// @param start_states (count, states, sums_of_k): starts the kernel that computes for the first `count` segments of
/// each head the sums of k_t^T v_t, `states` [B, H, count, Dk, Dv], and the sums of k_t, `sums_of_k` [B, H, count, Dk].
/// The latter is null unless kNormalized.
/// @param start_walk (plan, normalizer): starts the walk; both parameters have the initial states of the segments
template <bool kNormalized, class StartStates, class StartWalk>
void in_segments(const Bf16Arguments& a, tile::LaunchPlan plan, Normalizer normalizer, StartStates start_states,
                 StartWalk start_walk) {
  if (const int count = plan.segments - 1; count > 0) {
    const std::int64_t rows = std::int64_t(a.B) * a.H * count * a.Dk;
    float* states = workspace<float>("linear_attention: states", std::size_t(rows * a.Dv));
    float* sums_of_k = kNormalized ? workspace<float>("linear_attention: normalizers", std::size_t(rows)) : nullptr;
    start_states(count, states, sums_of_k);
    tile::carry_states(a.B, a.H, a.Dk, count, tile::CarriedStates<>{a.initial_state, a.Dv, states},
                       tile::CarriedStates<>{packed(normalizer.initial_z, a.H, a.Dk, 1), 1, sums_of_k});
    plan.starts = states;
    normalizer.starts = sums_of_k;
  }
  start_walk(plan, normalizer);
}

/// The z that a block's segment starts from; null if it is 0.
template <class Part>
__device__ __forceinline__ const float* start_of_z(const Normalizer& normalizer, const Part& part,
                                                   const tile::LaunchPlan& plan, int Dk) {
  if (part.segment > 0) {
    return normalizer.starts + (std::int64_t(part.head) * (plan.segments - 1) + part.segment - 1) * Dk;
  }
  return normalizer.initial_z ? normalizer.initial_z + std::int64_t(part.head) * Dk : nullptr;
}

}  // namespace
}  // namespace tutorial::linear_attention
