#pragma once
/// @file
/// Numbered barriers, and the registers of a block.

#include <array>
#include <vector>

#include "sanitizer.hpp"

namespace emulator {

/// A barrier with a number; see named_barrier_sync().
struct NamedBarrier {
  unsigned threads = 0;  ///< that have to come; 0 while none has
  unsigned arrived = 0;
  std::array<unsigned, 32> lanes{};  ///< that have come, for each warp
  unsigned parity = 0;
  /// Consecutive phases alternate, as those of the block's barrier do.
  sanitizer::SyncPoint points[2] = {};

  /// As at the start of a block.
  void reset() {
    threads = arrived = parity = 0;
    lanes.fill(0);
  }
};

/// The registers of a block, all of a multiprocessor's as with `__launch_bounds__(threads, 1)`.
struct Registers {
  std::vector<unsigned> of_warp;  ///< registers per thread
  unsigned free = 0;              ///< in the same unit, summed over warps

  /// As at the start of a block of this many warps.
  void reset(unsigned warps);
};

}  // namespace emulator
