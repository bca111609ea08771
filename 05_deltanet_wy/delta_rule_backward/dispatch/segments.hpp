#pragma once
/// @file
/// How `--backward` cuts a sequence for its two walks by warpgroups.

#include <cstdint>

#include "05_deltanet_wy/delta_rule_backward.hpp"

namespace tutorial::delta_rule {

/// Segments of a head, which are walked at once.
struct BackwardSegments {
  int count = 1;   ///< of a head, 1 or more
  int chunks = 0;  ///< of a segment, an even number; the last one may have fewer

  /// As many segments as give each multiprocessor one block of a walk, but no more than kMost. With one segment
  /// there is nothing to carry.
  static BackwardSegments one_wave(const Bf16BackwardArguments&);
  static constexpr int kMost = 32;  ///< as a warp has lanes
};

/// Whether walks in one_wave() of segments are estimated to take less than walks at once. With gates this depends on
/// their values, which the host does not know: those that forget and those that do not count alike.
/// @param chunk_clocks of a chunk of both walks
bool segments_are_faster(const Bf16BackwardArguments&, double chunk_clocks, bool has_gates);

/// Bytes of what each segment does to states, for widths that a walk by warpgroups supports; 0 with one segment.
/// @param rates decays of a segment: 0, 1, or 64 or 128 with a gate per row
std::int64_t backward_segments_memory(const Bf16BackwardArguments&, const BackwardSegments&, int rates);

}  // namespace tutorial::delta_rule
