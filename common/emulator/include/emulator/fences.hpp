#pragma once
/// @file
/// Memory fences: what a thread wrote before one is seen before what it writes after.

#include <atomic>

namespace emulator {

#ifdef EMULATOR_TSAN
/// ThreadSanitizer does not know fences. To it a fence is a meeting point of all threads: it orders at least what a
/// fence orders, so there are no false reports, and a race that a fence hides by chance may go unseen.
inline std::atomic<int> fence_meeting_point;
inline void fence() {
  fence_meeting_point.fetch_add(1, std::memory_order_seq_cst);
}
#else
inline void fence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
#endif

}  // namespace emulator

// NOLINTBEGIN(bugprone-reserved-identifier): the names are CUDA's

/// For all threads of the grid.
inline void __threadfence() {
  emulator::fence();
}
/// For the threads of the block.
inline void __threadfence_block() {
  emulator::fence();
}
/// For all threads of the grid and the host.
inline void __threadfence_system() {
  emulator::fence();
}

// NOLINTEND(bugprone-reserved-identifier)
