#pragma once
/// @file
/// The barrier of all threads of a block: __syncthreads().

#include <source_location>

#include "recorder.hpp"
#include "sanitizer.hpp"

namespace emulator {

class Block;

/// The barrier of one block. Consecutive phases alternate between two sets of fields, because the first threads may
/// come to the next phase before the last have left this one.
class BlockBarrier {
 public:
  explicit BlockBarrier(Block& block) : block_(block) {}

  /// As at the start of a block.
  void reset();
  void check_at_end() {}
  /// Returns for how many threads the predicate holds.
  int wait(bool predicate, std::source_location where);

 private:
  Block& block_;
  unsigned arrived_ = 0;
  std::source_location first_arrival_;
  bool same_place_ = true;  ///< as the first
  unsigned parity_ = 0;
  int holds_[2] = {};  ///< threads whose predicate holds
  sanitizer::SyncPoint points_[2];
  PhaseClocks clocks_ = {};  ///< of the last to come
  std::int64_t opened_ = 0;  ///< how often
};

}  // namespace emulator
