#pragma once
/// @file
/// Numbered barriers for some of a block's warps.

#include <array>
#include <source_location>

#include "hand_over.hpp"
#include "recorder.hpp"

namespace emulator {

class Block;

/// A barrier with a number; see named_barrier_sync().
struct NamedBarrier {
  unsigned threads = 0;  ///< that have to come; 0 while none has
  unsigned arrived = 0;
  std::array<unsigned, 32> lanes{};  ///< that have come, for each warp
  unsigned parity = 0;
  /// Consecutive phases alternate, as those of the block's barrier do.
  HandOver points[2] = {};
  PhaseClocks clocks = {};  ///< of the last arrivals
  std::int64_t opened = 0;  ///< how often
};

/// The numbered barriers of one block.
class NamedBarriers {
 public:
  explicit NamedBarriers(Block& block) : block_(block) {}

  /// As at the start of a block.
  void reset();
  void check_at_end() {}
  /// See named_barrier_arrive().
  void arrive(unsigned id, unsigned threads, std::source_location where);
  /// See named_barrier_sync().
  void wait(unsigned id, unsigned threads, std::source_location where);
  /// The number of one of them.
  unsigned id(const NamedBarrier& barrier) const { return static_cast<unsigned>(&barrier - barriers_.data()); }

 private:
  /// Ends the launch with a report if threads cannot come to this barrier.
  NamedBarrier& usable(unsigned id, unsigned threads, std::source_location where);
  void arrive(NamedBarrier& barrier, std::source_location where);

  Block& block_;
  std::array<NamedBarrier, 16> barriers_;
};

}  // namespace emulator
