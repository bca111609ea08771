#pragma once
/// @file
/// Counts of what kernels for Hopper do, beside those of counters.hpp.

#include <cstdint>

namespace emulator {

/// Sums over all launches since reset_hopper_counters().
struct HopperCounters {
  std::uint64_t arrivals = 0;  ///< at barriers in shared memory, one per thread
  std::uint64_t products = 0;  ///< wgmma(), one per warp
};

HopperCounters hopper_counters();
void reset_hopper_counters();

}  // namespace emulator
