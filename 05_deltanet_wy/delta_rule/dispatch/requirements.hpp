#pragma once
/// @file
/// What dispatch and the gated operator ask about walks, on the CPU and in segments (requirements.cu).

#include <algorithm>
#include <cstdint>

#include "05_deltanet_wy/delta_rule.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::delta_rule {

/// Bytes of memory that `segments` needs beside inputs and outputs, with any number of them.
std::int64_t segments_memory(const Bf16Arguments&, const tile::LaunchPlan&);
/// Bytes that its kernels read from device memory or write to it.
std::int64_t segments_bytes_moved(const Bf16Arguments&, const tile::LaunchPlan&);

/// The part of both that is due to the states that segments start from: H and E (chunk/segment_maps.cuh).
std::int64_t segment_maps_memory(const Bf16Arguments&, const tile::LaunchPlan&);
/// @param inverse_rows of a chunk's T, each of 64 bf16
std::int64_t segment_maps_bytes_moved(const Bf16Arguments&, const tile::LaunchPlan&, int inverse_rows);

/// Bytes of a thread that walks: S, the chunk and its outputs.
inline std::int64_t walk_memory(const FloatArguments& a) {
  const std::int64_t C = std::min(a.C, a.L), Dk = a.Dk, Dv = a.Dv;
  return 8 * (Dk * Dv + C * (2 * Dk + 2 * Dv + 1));
}

/// Bytes of a thread for W, U, v_new, the products with S, and scores.
inline std::int64_t step_memory(const FloatArguments& a) {
  const std::int64_t C = std::min(a.C, a.L), Dk = a.Dk, Dv = a.Dv;
  return 8 * (C * (Dk + 3 * Dv) + C * C);
}

}  // namespace tutorial::delta_rule
