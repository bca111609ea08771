#pragma once
/// @file
/// What is said of a race.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "emulator/races.hpp"
#include "race_clocks.hpp"
#include "race_places.hpp"

namespace emulator::races {

/// A thread of a kernel.
struct ThreadName {
  std::string block;  ///< "(1,0,0)"
  std::string index;  ///< "(3,0,0)"
};

/// An access.
struct Seen {
  bool is_write = false;
  std::uint8_t kind = 0;  ///< see Kind
  Place place = 0;
  std::uint32_t run = 0;  ///< the cluster
  std::uint32_t clock = 0;
  unsigned thread = 0;  ///< its number in the cluster
  ThreadName name = {};
};

/// What lies at an address.
struct Memory {
  const void* address = nullptr;
  Variable variable;                 ///< a __shared__ one, if it has a name
  std::optional<NamedMemory> named;  ///< device memory with a name
  std::string other;                 ///< what else there is to say

  /// "stages[0][3]". @param line of an access; the declaration before it tells the sizes of a variable
  /// @param bytes of the access
  std::string text(const Line& line, std::size_t bytes) const;
};

/// What was found, before places have lines.
struct Found {
  /// What is missing: the report says it at the end.
  enum class Why {
    no_barrier,        ///< between threads of a block
    no_order,          ///< between blocks
    release_before,    ///< what hands over comes before the access
    not_awaited,       ///< something hands the access over, but the second thread does not wait for it
    announced_before,  ///< a flag is stored before what it announces
    not_acquired,      ///< a flag announces the access, but the second thread has not acquired that
    not_released,      ///< the flag was stored without release
    load_relaxed,      ///< the flag was read without acquire
    plain_access,      ///< of a flag: one of the two is atomic
    copies_race,       ///< two bulk copies have written there
    copy_under_way,    ///< of cp.async, or one that an mbarrier counts
    early_start,       ///< of a kernel that has not waited for the one before
    other_stream,      ///< of a launch or a copy before
    not_fenced,        ///< through the async proxy
    unwritten          ///< there is no first access
  };

  Finding::Kind kind = Finding::Kind::race;
  Why why = Why::no_barrier;
  Memory memory;
  std::size_t bytes = 4;
  Seen first, second;
  Place hint = 0;
  Memory hint_memory;             ///< of a flag
  unsigned barrier_line = 0;      ///< of the second thread's last barrier
  bool is_warps_barrier = false;  ///< that one was a warp's
  bool is_shared = false;
};

/// The sentence about it.
std::string sentence_of(const Found& found);

}  // namespace emulator::races
