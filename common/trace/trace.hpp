#pragma once
/// @file
/// What the warps of a kernel did and when: what a GPU or the emulator writes down, and tools/timeline draws.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace tutorial::trace {

/// What an event is. The names of the file are those of name_of().
enum class Kind : std::uint8_t {
  none,
  start,             ///< of a warp, or of a block's first barrier; value: nanoseconds of the GPU's timer
  end,               ///< of a warp
  init,              ///< of a barrier; value: its count
  arrive,            ///< at a barrier
  expect,            ///< an arrival; value: bytes that are to come
  wait,              ///< at a barrier, for a phase
  load,              ///< a bulk load, from its request to its arrival where that is known; object: the barrier
  push,              ///< a bulk copy to another block, the same
  store,             ///< a bulk store
  commit_stores,     ///< closes a group of them
  wait_stores,       ///< value: groups that stay under way
  commit_copies,     ///< of cp.async
  wait_copies,       ///< value: groups that stay under way
  fence_products,    ///< before products of a warpgroup
  product,           ///< products of a group from one line, from their start to their end; the emulator alone has them
  commit_products,   ///< closes a group
  wait_products,     ///< value: groups that stay under way
  named_arrive,      ///< object: the number of the barrier
  named_wait,        ///< the same
  block_wait,        ///< __syncthreads()
  cluster_arrive,    ///< at the cluster's barrier
  cluster_wait,      ///< there
  registers,         ///< setmaxnreg; value: registers of a thread from now on
  next_kernel,       ///< let_next_kernel_start()
  previous_kernel,   ///< wait_for_previous_kernel()
  collective,        ///< lanes of a warp wait for each other; only where they wait forever
  count,
};

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
  int peer = -1;             ///< the rank of the block that the barrier belongs to, where that is another one
};

/// What one block did.
struct Block {
  std::array<std::uint32_t, 3> index{};
  int launch = 0;            ///< its number in Trace::launches
  std::int64_t shift = 0;    ///< what its clocks are behind those of the first block
  std::vector<Event> events;
};

/// A kernel that was started.
struct Launch {
  std::uint32_t place = 0;
  std::array<std::uint32_t, 3> grid{}, block{}, cluster{};
  bool starts_early = false;
};

/// All of it.
struct Trace {
  std::string clock;   ///< "multiprocessor": clocks of a GPU; "logical": those of the emulator
  std::string device;  ///< its name; of the emulator's clocks the card that their latencies are of
  double clock_ghz = 0;  ///< 0 where it is not known
  std::vector<Place> places;
  std::vector<Launch> launches;
  std::vector<Block> blocks;
  std::string stuck;  ///< the emulator's report, if threads wait forever
};

/// Writes it as JSON. @throws std::runtime_error if that is impossible
void write(const Trace& trace, const std::string& file);

}  // namespace tutorial::trace
