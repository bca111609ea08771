#pragma once
/// @file
/// Copies from a block's shared memory to that of another block of its cluster that one thread issues: PTX's
/// cp.async.bulk from shared::cta to shared::cluster.
///
/// The destination is poisoned when the copy is issued, and its data come when a thread waits for the barrier and
/// cannot go on without them. Only then the source is read, as bulk copies see it (async_proxy.hpp). EMULATOR_ASYNC can
/// let all of it happen at once instead. To be called in kernels only; alignment is the caller's to check
/// (push_shared.cuh does).

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>

#include "emulator/bulk_copy.hpp"
#include "emulator/cluster.hpp"

namespace emulator {

/// Adds a copy that was issued. @param mark what the barrier's 8 bytes hold
void push_shared_copy(void* there, const void* source, std::size_t bytes, const std::uint64_t* barrier,
                      std::uint64_t mark, std::source_location where);

/// Starts a copy to block `rank`, to the offset that `shared` has in this block. The barrier that `rank` has at the
/// offset of `barrier` counts the bytes. Ends the launch with a report where peer_address() does, if threads have
/// stored in the source what bulk copies do not see, and if this block ends before the copy has read the source.
inline void issue_push(void* shared, const void* source, std::size_t bytes, const std::uint64_t* barrier, unsigned rank,
                       std::source_location where) {
  void* there = peer_address(shared, rank, where);
  const std::uint64_t* counting = peer_address(barrier, rank, where);
  read_for_sanitizers(source, bytes);
  std::memset(there, 0xFF, bytes);
  push_shared_copy(there, source, bytes, counting, *counting, where);
}

}  // namespace emulator
