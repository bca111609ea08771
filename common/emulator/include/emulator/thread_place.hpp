#pragma once
/// @file
/// Where a thread of a kernel stands, for tools that look for accesses without a barrier between them.

#include <cstdint>

#include "emulator/vector_types.hpp"

namespace emulator {

/// The thread that runs, and how many barriers it has passed. Of two accesses of a block's threads the first comes
/// before the second if the second thread has passed more barriers of the block then, or, in one warp, more of the
/// warp.
struct ThreadPlace {
  std::uint32_t launch = 0;  ///< counted from 1 since the process began
  std::uint32_t block = 0;   ///< x first, then y, then z
  std::uint32_t thread = 0;  ///< in its block, as the hardware counts
  std::uint32_t block_barriers = 0;
  std::uint32_t warp_barriers = 0;  ///< calls of __syncwarp()
  std::uint32_t barrier_line = 0;   ///< of the last one that it has passed
};

/// The place of the thread that calls. To be called in kernels only.
ThreadPlace thread_place();

}  // namespace emulator
