#pragma once
/// @file
/// The registers of a block, which its warps hand to each other.

#include <cstdint>
#include <source_location>
#include <vector>

namespace emulator {

class Block;

/// The registers of one block, all of a multiprocessor's as with `__launch_bounds__(threads, 1)`.
class RegisterPool {
 public:
  explicit RegisterPool(Block& block) : block_(block) {}

  /// As at the start of a block.
  void reset();
  /// Looks for warpgroups whose warps differ.
  void check_at_end();
  /// See emulator::change_registers().
  void change(unsigned count, bool increase, std::source_location where);
  /// Registers per thread that warps have given back, summed over warps.
  unsigned free() const { return free_; }
  /// Registers per thread of a warp.
  unsigned of_warp(unsigned warp) const { return of_warp_[warp]; }

 private:
  Block& block_;
  std::vector<unsigned> of_warp_;  ///< registers per thread
  unsigned free_ = 0;
  std::int64_t last_release_ = 0;  ///< on the clock of a trace
};

}  // namespace emulator
