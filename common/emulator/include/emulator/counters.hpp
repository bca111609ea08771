#pragma once
/// @file
/// What kernels did, counted: true on every machine, whatever its speed.

#include <cstddef>
#include <cstdint>

namespace emulator {

/// Sums over all launches since the start or since reset_counters().
struct Counters {
  std::uint64_t launches = 0;
  std::uint64_t blocks = 0;
  std::uint64_t threads = 0;
  std::uint64_t barriers = 0;              ///< one for all threads of a block
  std::uint64_t warp_barriers = 0;         ///< __syncwarp(), one for all its lanes
  std::uint64_t warp_collectives = 0;      ///< shuffles, votes, mma() and their like, one for all lanes of a warp
  std::uint64_t atomics = 0;               ///< one per thread
  std::uint64_t register_changes = 0;      ///< increase_registers() and decrease_registers(), one per warp
  std::uint64_t global_bytes_read = 0;     ///< through load_global(), cp_async() and their like
  std::uint64_t global_bytes_written = 0;  ///< through store_global() and store_tile()
};

/// The counts of all launches that have finished.
Counters counters();
/// Sets them to zero.
void reset_counters();

/// Counts of the block that this OS thread runs; added to the others when the block has finished. "local-exec": kernels
/// are linked into executables only, and with the default GCC 12 may take an address that the linker then refuses.
extern constinit thread_local Counters block_counters __attribute__((tls_model("local-exec")));

/// The helpers of common/device call these. Threads of a block share one set of counts and take turns, which
/// ThreadSanitizer could not know.
__attribute__((no_sanitize("thread"))) inline void count_global_read(std::size_t bytes) {
  block_counters.global_bytes_read += bytes;
}
__attribute__((no_sanitize("thread"))) inline void count_global_write(std::size_t bytes) {
  block_counters.global_bytes_written += bytes;
}
__attribute__((no_sanitize("thread"))) inline void count_atomic() {
  ++block_counters.atomics;
}

}  // namespace emulator
