#pragma once
/// @file
/// Memory fences: what a thread wrote before one is seen before what it writes after.

#include <source_location>

namespace emulator {

/// A fence of all threads. ThreadSanitizer does not know fences: to it this is a meeting point of all threads. That orders
/// at least what a fence orders, so there are no false reports, and a race that a fence hides by chance may go unseen.
/// The detector of races (races.hpp) knows them.
void fence(std::source_location where);

}  // namespace emulator

// NOLINTBEGIN(bugprone-reserved-identifier): the names are CUDA's

/// For all threads of the grid.
inline void __threadfence(std::source_location where = std::source_location::current()) {
  emulator::fence(where);
}
/// For the threads of the block.
inline void __threadfence_block(std::source_location where = std::source_location::current()) {
  emulator::fence(where);
}
/// For all threads of the grid and the host.
inline void __threadfence_system(std::source_location where = std::source_location::current()) {
  emulator::fence(where);
}

// NOLINTEND(bugprone-reserved-identifier)
