#pragma once
/// @file
/// Copies that arrive when they are waited for: what cp.async becomes on the emulator.
///
/// Memory is read and written here, in the kernel's own code, so that sanitizers see these accesses as the thread's.
/// Only the list of what is under way is kept by the emulator, for each thread of the block. To be called in kernels
/// only; addresses and their alignment are the caller's to check (cp_async.cuh does).

#include <cstddef>
#include <cstring>
#include <source_location>

#include "emulator/races.hpp"

namespace emulator {

/// A copy that was issued. What it will write is read when it is issued.
struct AsyncCopy {
  void* destination;
  std::size_t bytes;  ///< 4, 8 or 16
  std::byte data[16];
  std::source_location where;
};

/// Adds a copy to those that this thread has not committed yet.
void push_async_copy(const AsyncCopy& copy);
/// Makes these a group of their own, even if there are none.
void commit_async_copies(std::source_location where);
/// Takes the oldest copy out of the list, if it belongs to a group older than the `pending` newest ones; else returns
/// false and leaves `copy` as it is.
bool pop_async_copy(unsigned pending, AsyncCopy& copy, std::source_location where);

/// Poisons the destination and remembers the copy. Without a source it will write zeros.
/// @tparam kBytes up to 16
template <std::size_t kBytes>
void issue_async_copy(void* destination, const void* source, std::source_location where) {
  AsyncCopy copy{destination, kBytes, {}, where};
  if (source != nullptr) std::memcpy(copy.data, source, kBytes);
  std::memset(destination, 0xFF, kBytes);
  note_unfinished_write(destination, kBytes, where);
  push_async_copy(copy);
}

/// Carries out all copies but those of the `pending` newest groups and those that were not committed.
inline void finish_async_copies(unsigned pending, std::source_location where = std::source_location::current()) {
  AsyncCopy copy;
  while (pop_async_copy(pending, copy, where)) {
    std::memcpy(copy.destination, copy.data, copy.bytes);
    note_write(copy.destination, copy.bytes, copy.where);
  }
}

}  // namespace emulator
