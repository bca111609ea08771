#pragma once
/// @file
/// Launches of kernels that do not run.

namespace emulator {

/// For tests of launches that are too large to be run: with false they are checked as always, and their kernels do not
/// run.
void set_kernels_run(bool run);

}  // namespace emulator
