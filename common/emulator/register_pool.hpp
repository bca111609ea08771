#pragma once
/// @file
/// The registers of a block, which its warps hand to each other.

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

 private:
  Block& block_;
  std::vector<unsigned> of_warp_;  ///< registers per thread
  unsigned free_ = 0;
};

}  // namespace emulator
