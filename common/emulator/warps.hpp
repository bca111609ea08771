#pragma once
/// @file
/// The warps of a block, whose lanes exchange values.

#include <cstddef>
#include <source_location>
#include <vector>

#include "sanitizer.hpp"
#include "warp_function.hpp"

namespace emulator {

class Block;
struct KernelThread;

/// What the lanes of each warp do together.
class Warps {
 public:
  explicit Warps(Block& block);

  /// As at the start of a block.
  void reset();
  void check_at_end() {}
  /// See warp_exchange(). @param orders_memory as __syncwarp() does and the other collectives do not
  void exchange(unsigned mask, const void* mine, std::size_t size, void* all, std::source_location where,
                bool orders_memory = false);
  /// The lanes of the mask meet, and then `together` computes once for all of them.
  /// @param mine what a lane brings, and what `together` leaves there for it
  void compute(unsigned mask, void* mine, std::size_t size, WarpFunction* together, std::source_location where);
  /// See __syncwarp().
  void sync(unsigned mask, std::source_location where);

 private:
  struct Warp {
    unsigned existing = 0;  ///< a bit for each lane that the block has
    unsigned waiting = 0;   ///< that waits in a collective
    unsigned parity = 0;    ///< for each lowest lane of a mask, which of its points is next
    /// Of __syncwarp, by the lowest lane of the mask; two, as for the block's barrier.
    sanitizer::SyncPoint points[32][2];
  };

  /// The thread that runs waits until the lanes of its mask are there.
  void meet_others(std::source_location where, bool orders_memory);
  /// What the last one of these lanes does.
  void finish(unsigned first, unsigned lanes, std::source_location where, bool orders_memory);
  /// Whether the lanes of the warp that starts at thread `first` all wait in the same collective as `one`, one of them.
  bool agree(const KernelThread& one, unsigned first, unsigned lanes) const;
  /// Hands out what the lanes brought, or computes with it.
  void deliver(unsigned first, unsigned lanes);
  /// Sets the clocks of these lanes, for a trace, to that of the last one.
  void meet(unsigned first, unsigned lanes);

  Block& block_;
  std::vector<Warp> warps_;
};

}  // namespace emulator
