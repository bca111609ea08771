#pragma once
/// @file
/// The states that segments start from: `sequence_parallel` explains them.

#include <cuda_runtime.h>

#include <cstdint>

#include "03_gla/gla/launch_plan.hpp"
#include "common/device/workspace.hpp"
#include "common/tile/carry.cuh"

namespace tutorial::gla {

/// The plan with its `starts`, if it has several segments.
/// @param launch_states launch_states(count, states, decays) starts the kernel that leaves X_s [B, H, count, Dk, Dv] and
/// D_s [B, H, count, Dk] of the first `count` segments, all but the last
/// @throws CudaError if the memory is not there or a launch is refused
template <class LaunchStates>
LaunchPlan with_starts(const Bf16Arguments& a, LaunchPlan plan, LaunchStates launch_states) {
  const int count = plan.segments - 1;
  if (count == 0) return plan;
  const std::int64_t rows = std::int64_t(a.B) * a.H * count * a.Dk;
  float* states = workspace<float>("gla: states of segments", std::size_t(rows * a.Dv));
  float* decays = workspace<float>("gla: decays of segments", std::size_t(rows));
  launch_states(count, states, decays);
  tile::carry_states(a.B, a.H, a.Dk, count,
                     tile::CarriedStates<tile::RowDecay<1>>{a.initial_state, a.Dv, states, {decays, a.Dk}});
  plan.starts = states;
  return plan;
}

}  // namespace tutorial::gla
