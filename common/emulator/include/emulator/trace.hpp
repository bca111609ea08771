#pragma once
/// @file
/// Writes down what the warps of kernels do: see common/trace/trace.hpp.
///
/// Who waits for whom is real. Times are not: each thread has a logical clock (recorder.hpp), which a table of latencies
/// advances (latencies.hpp). A traced launch takes one OS thread.
///
/// EMULATOR_TRACE=FILE writes, without any call, the launch that got stuck, or else the one that took the most clocks.
/// EMULATOR_TRACE_BLOCKS=N are the blocks of a launch that are written down, 8 unless it says otherwise.

#include <cstdint>

#include "common/trace/trace.hpp"

namespace emulator {

/// From now on all launches are written down. @param blocks of each launch, the first ones
void begin_trace(std::uint64_t blocks);
/// What was written down since.
tutorial::trace::Trace end_trace();

}  // namespace emulator
