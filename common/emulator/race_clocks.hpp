#pragma once
/// @file
/// What a thread of a kernel knows of the others: vector clocks.
///
/// A thread's own clock goes up each time that it hands something over: at a barrier, an arrival, a release. What it does
/// in between has the clock's value. A thread that has waited knows the values up to which others have come; an access
/// with a value that it does not know is in no order with its own.
///
/// Source: M. Christiaens and K. De Bosschere, "TRaDe, a topological approach to on-the-fly race detection", and C.
/// Flanagan and S. Freund, "FastTrack: efficient and precise dynamic race detection", PLDI 2009.

#include <cstdint>
#include <memory>
#include <vector>

namespace emulator::races {

/// A number for a line of a source file: see places.hpp.
using Place = std::uint32_t;

struct Message;
/// What threads of other clusters have released and a thread has acquired.
using Messages = std::vector<std::shared_ptr<const Message>>;

/// Up to which value each thread of a cluster is known, up to which phase each of its mbarriers, and what came from
/// other clusters.
struct VectorClock {
  std::vector<std::uint32_t> threads;   ///< by number in the cluster; empty: none is known
  std::vector<std::uint32_t> barriers;  ///< by number; may be shorter than there are barriers
  Messages messages;
  bool has_previous = false;  ///< whether the launch before is known to have ended

  void join(const VectorClock& other);
};

/// What a thread has released by a flag in device memory. It outlives its cluster.
struct Message {
  std::uint32_t run = 0;    ///< the cluster
  unsigned thread = 0;      ///< its number there
  std::uint32_t clock = 0;  ///< of the thread, at the release
  Place place = 0;          ///< of the release
  const void* flag = nullptr;
  VectorClock knowledge;
};

/// Adds those that are not there yet.
void add(Messages& messages, const Messages& more);
/// The message of this or of an older release that makes an access of another cluster known; nullptr if there is none.
const Message* find(const Messages& messages, std::uint32_t run, unsigned thread, std::uint32_t clock);
/// The newest message of this thread, whatever it makes known; nullptr if there is none.
const Message* find_newest(const Messages& messages, std::uint32_t run, unsigned thread);

/// A hand-over, for reports.
struct Release {
  std::uint32_t clock = 0;  ///< of what comes before it
  Place place = 0;
  bool is_barrier = false;  ///< of the block or the warp
};

/// A flag that a thread has loaded, for reports.
struct FlagSeen {
  Place place = 0;
  const void* flag = nullptr;
  std::uint32_t run = 0;  ///< the cluster that has stored it
};

/// The clock of one thread. Barriers of a whole block and of a whole warp do not touch `others`: they raise the floors.
struct ThreadClock {
  std::uint32_t own = 1;
  std::uint32_t block_floor = 0;  ///< known of all threads of its block
  std::uint32_t warp_floor = 0;   ///< known of all lanes of its warp
  VectorClock others;
  VectorClock deferred;              ///< known from the next hand-over or wait on that follows a shared access
  std::uint32_t deferred_since = 0;  ///< the value of the clock when it was deferred; 0: nothing is
  // The values of the clock at the last accesses, for barriers that are moved.
  std::uint32_t last_access = 0;
  std::uint32_t last_shared_access = 0;
  std::vector<std::uint32_t> proxy_fences;    ///< the values of the clock at each fence_async_proxy()
  std::vector<std::uint32_t> known_at_fence;  ///< of each thread, at the last of them
  bool has_late_fence = false;                ///< one stands behind the next hand-over
  Release releases[16];                       ///< the last ones, in a ring
  unsigned released = 0;

  // Fences of memory and relaxed operations together hand over, too.
  std::shared_ptr<const Message> fenced;  ///< what stores after the last fence release
  Messages unfenced;                      ///< what loads have found, and a fence will acquire

  // Flags at which a release or an acquire was missing, for reports.
  FlagSeen unreleased;  ///< stored by others without release
  FlagSeen unacquired;  ///< released by others, loaded without acquire

  /// As at the start of a cluster. @param start greater than any clock of earlier clusters
  void reset(std::uint32_t start);
  /// What was deferred is known, if shared memory was accessed since.
  void learn();
  /// The thread learns this later. @param what of which more may be deferred already
  void defer(const VectorClock& what);
  /// The value of the clock before the last access: of shared memory, or of any if it has accessed none.
  std::uint32_t before_access() const;
  /// Goes on to the next value. @param place of what hands over
  void tick(Place place, bool is_barrier);
};

}  // namespace emulator::races
