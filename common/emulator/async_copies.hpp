#pragma once
/// @file
/// The copies of one thread that are under way.

#include <cstddef>
#include <vector>

#include "emulator/async_copy.hpp"

namespace emulator {

/// A thread's copies in the order of issue. Groups are numbered as they are closed; a copy carries the number of its
/// group, or that of the next group to be closed.
class AsyncCopies {
 public:
  /// Adds it as the newest.
  void push(const AsyncCopy& copy) { copies_.push_back({copy, groups_}); }
  /// Closes a group, which may be empty.
  void commit();
  /// See pop_async_copy().
  bool pop(unsigned pending, AsyncCopy& copy);
  /// Forgets all of them: they were never waited for.
  void reset();

 private:
  struct Numbered {
    AsyncCopy copy;
    unsigned group;
  };
  std::vector<Numbered> copies_;
  std::size_t arrived_ = 0;  ///< how many of them have been taken
  unsigned groups_ = 0;      ///< closed so far
};

}  // namespace emulator
