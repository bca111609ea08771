#pragma once
/// @file
/// Writes down what the warps of the kernels do that are launched between begin() and end(): by the emulator, and on a GPU
/// in builds with TUTORIAL_TRACE (docs/trace.md).

#include "common/device/launch_config.hpp"
#include "common/trace/trace.hpp"

namespace tutorial::trace {

/// Whether this build can.
#if TUTORIAL_EMULATOR || TUTORIAL_TRACE
inline constexpr bool kIsPossible = true;
#else
inline constexpr bool kIsPossible = false;
#endif

/// From now on launches are written down; what was before is forgotten. @param blocks of each launch, the first ones
void begin(unsigned blocks);
/// Forgets what was written down so far. In contrast to begin() the caches stay as they are.
void restart();
/// What was written down. A GPU's kernels have ended.
Trace end();

#if TUTORIAL_TRACE
/// Called by count_launch().
void note_launch(const LaunchConfig& config);
#endif

}  // namespace tutorial::trace
