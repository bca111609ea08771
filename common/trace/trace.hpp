#pragma once
/// @file
/// What the warps of a kernel did and when: what a GPU or the emulator writes down, and tools/timeline draws.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/trace/kind.hpp"

namespace tutorial::trace {

/// "wait"
const char* name_of(Kind kind);

/// A line of a source.
struct Place {
  std::string file;        ///< empty where only its number is known
  std::uint32_t hash = 0;  ///< of the file's path (device/trace.cuh)
  std::uint32_t line = 0;
};

/// What one warp did.
struct Event {
  static constexpr std::int64_t kNever = -1;

  std::uint32_t warp = 0;
  Kind kind = Kind::none;
  std::uint32_t place = 0;   ///< its number in Trace::places
  std::int64_t begin = 0;    ///< in clocks
  std::int64_t end = 0;      ///< kNever: it waits forever
  std::uint64_t object = 0;  ///< the barrier: its place in shared memory, or its number
  std::int64_t phase = -1;   ///< of the barrier where it is known; of a GPU's wait its parity
  std::int64_t value = 0;
  int peer = -1;  ///< the rank of the block that the barrier belongs to, where that is another one
};

/// What one block did.
struct Block {
  std::array<std::uint32_t, 3> index{};
  int launch = 0;          ///< its number in Trace::launches
  std::int64_t shift = 0;  ///< what its clocks are behind those of the first block
  std::vector<Event> events;
};

/// A kernel that was started.
struct Launch {
  std::uint32_t place = 0;
  std::array<std::uint32_t, 3> grid{};     ///< blocks
  std::array<std::uint32_t, 3> block{};    ///< threads
  std::array<std::uint32_t, 3> cluster{};  ///< blocks
  bool starts_early = false;
};

/// All of it.
struct Trace {
  std::string clock;     ///< "multiprocessor": clocks of a GPU; "logical": those of the emulator
  std::string device;    ///< its name; of the emulator's clocks the card that their latencies are of
  double clock_ghz = 0;  ///< 0 where it is not known
  std::vector<Place> places;
  std::vector<Launch> launches;
  std::vector<Block> blocks;
  std::string stuck;  ///< the emulator's report, if threads wait forever
};

/// Writes it as JSON. @throws std::runtime_error if that is impossible
void write(const Trace& trace, const std::string& file);

}  // namespace tutorial::trace
