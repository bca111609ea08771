#pragma once
/// @file
/// The barriers in the shared memory of one block.

#include <cstdint>
#include <deque>
#include <source_location>

#include "hand_over.hpp"
#include "recorder.hpp"

namespace emulator {

class Block;

/// The state of one barrier; see include/emulator/mbarrier.hpp.
struct MBarrier {
  static constexpr unsigned kMost = (1u << 20) - 1;  ///< arrivals or bytes that a GPU can count in one phase

  const void* address = nullptr;
  Block* block = nullptr;       ///< that it belongs to
  unsigned count = 0;           ///< arrivals that each phase needs
  unsigned arrivals_left = 0;   ///< in the current phase
  std::int64_t bytes_left = 0;  ///< in the current phase; negative while bytes have come that nobody has expected yet
  std::uint64_t phase = 0;
  std::source_location where;  ///< of its initialisation
  unsigned number = 0;         ///< that the detector of races gives it
  unsigned creator = 0;        ///< the thread that has initialised it
  bool is_fenced = false;      ///< whether that thread has called mbarrier_fence_init() afterwards
  /// For even and for odd phases: whether a thread of another block has arrived, or has pushed data.
  bool is_from_cluster[2] = {};
  /// For even and for odd phases: the arrivals of a phase come before the returns of the waits for it.
  HandOver points[2] = {};
  PhaseClocks clocks = {};  ///< of the last arrivals

  unsigned parity() const { return phase % 2; }
};

/// All barriers of a block. Their addresses stay the same, because threads that wait point to them.
class MBarriers {
 public:
  explicit MBarriers(Block& block) : block_(block) {}

  /// Forgets all of them.
  void reset();
  /// Looks for a barrier that got more bytes than its phases have expected.
  void check_at_end();
  /// The barrier at this address; nullptr if none has been initialised there.
  MBarrier* find(const void* address);
  /// See mbarrier_init().
  void create(const std::uint64_t* address, unsigned count, std::source_location where);
  /// All that thread `creator` has initialised are fenced from now on.
  void fence(unsigned creator);
  /// The barrier at this address, in whichever block of the cluster. Ends the launch with a report if it cannot be
  /// used. @param mark what its bytes hold
  MBarrier& usable(const std::uint64_t* address, std::uint64_t mark, std::source_location where);

  /// A thread of this block arrives. See mbarrier_arrive().
  void arrive(MBarrier& barrier, unsigned bytes, std::source_location where);
  /// See mbarrier_wait() and mbarrier_wait_cluster().
  void wait(MBarrier& barrier, unsigned parity, bool of_cluster, std::source_location where);
  /// Begins the next phase of a barrier of this block, and wakes those that wait for this phase, once nothing is missing.
  void end_phase_if_complete(MBarrier& barrier);

 private:
  Block& block_;
  std::deque<MBarrier> barriers_;
};

}  // namespace emulator
