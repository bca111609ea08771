#pragma once
/// @file
/// The speeds of the card at hand. An estimate counts clocks of a multiprocessor and bytes, and the card turns both into
/// microseconds. So what was measured on one card holds for others, as far as their multiprocessors are alike.

#include <cstdint>

namespace tutorial::estimate {

/// What an estimate knows of a card.
struct Card {
  int multiprocessors;
  double clocks;  ///< of a multiprocessor in a microsecond
  double bytes;   ///< that a copy in memory moves in a microsecond, read and written

  /// Of so many clocks one after the other.
  double microseconds(double count) const { return count / clocks; }
  /// Of moving so many bytes.
  /// @param speed as a multiple of a copy's. A kernel whose blocks read the same tiles gets some of them from the cache.
  double transfer(double count, double speed = 1) const { return count / (speed * bytes); }
  /// How often the card is filled before all blocks have run.
  /// @param resident blocks that a multiprocessor has at a time
  std::int64_t rounds(std::int64_t blocks, int resident = 1) const {
    const std::int64_t at_a_time = std::int64_t(resident) * multiprocessors;
    return (blocks + at_a_time - 1) / at_a_time;
  }
};

/// The current device. @throws CudaError if there is none
Card card();

}  // namespace tutorial::estimate
