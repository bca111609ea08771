#pragma once
/// @file
/// Kernels that start before the kernel before them has ended. The emulator runs one kernel after the other; what it
/// does here is for the detector of races (races.hpp). To be called in kernels only.

#include <source_location>

namespace emulator {

/// The next kernel of the stream may start.
void let_next_kernel_start(std::source_location where);
/// The kernel before has ended, and what it has written is visible to this thread.
void wait_for_previous_kernel(std::source_location where);

}  // namespace emulator
