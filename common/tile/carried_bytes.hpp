#pragma once
/// @file
/// The bytes that carry_states() (carry.cuh) moves, for formulas on the host.

#include <cstdint>

namespace tutorial::tile {

/// Bytes that carry_states() reads from device memory or writes to it, per head.
/// @param decays_per_element the number of floats that the decay reads per element and segment: 0, 1 or kFactors
inline std::int64_t carried_bytes(int Dk, int columns, int count, bool has_initial, int decays_per_element) {
  return 4 * std::int64_t(Dk) * columns * (has_initial + std::int64_t(count) * (2 + decays_per_element));
}

}  // namespace tutorial::tile
