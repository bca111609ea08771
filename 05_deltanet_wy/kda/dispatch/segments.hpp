#pragma once
/// @file
/// `segments` with any number of segments, and dispatch's choice of that number.

#include <cstdint>

#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/kda.hpp"
#include "common/device/walked_heads.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::kda {

/// Starts its kernels on current_stream(), for the heads that have not been walked. Requires: an empty
/// one_anchor_unsupported(), and a plan of make_launch_plan() with 64 columns.
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void segments(const Bf16Arguments&, const tile::LaunchPlan&, const WalkedHeads& = {});

/// Bytes of memory that they need. In requirements.cu.
std::int64_t segments_memory(const Bf16Arguments&, const tile::LaunchPlan&);

/// The problem as delta_rule's functions for segments take it.
inline delta_rule::Bf16Arguments without_gates(const Bf16Arguments& a) {
  return {a.B, a.H,          a.L, a.Dk, a.Dv, a.C, a.scale, a.normalize_keys, a.q, a.k, a.v, a.beta, a.initial_state,
          a.o, a.final_state};
}

/// The plan whose blocks walk the fewest chunks one after the other, if a segment needs two chunks before it.
tile::LaunchPlan shortest_segments(const Bf16Arguments&);
/// The chunks that the blocks of a plan walk one after the other, so counted.
std::int64_t chunks_in_line(const Bf16Arguments&, const tile::LaunchPlan&);

}  // namespace tutorial::kda
