#pragma once
/// @file
/// Launches of kernels that do not run.

namespace emulator {

/// For tests of launches that are too large to be run: with false they are checked as always, and their kernels do not
/// run. Memory that is allocated then is not poisoned: what nothing touches takes neither time nor memory.
void set_kernels_run(bool run);
bool kernels_run();

}  // namespace emulator
