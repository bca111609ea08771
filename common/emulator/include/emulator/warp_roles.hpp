#pragma once
/// @file
/// What warps of one block need that do different things: barriers with numbers, and shares of the registers. To be
/// called in kernels only.

#include <source_location>

namespace emulator {

/// Arrives at a barrier, and waits until `threads` threads have come. Ends the launch with a report if the number is
/// not between 1 and 15, if `threads` is not a multiple of 32 or differs from that of others who come, and if a warp
/// has come with a part of its lanes.
void named_barrier_sync(unsigned id, unsigned threads, std::source_location where);
/// The same without waiting.
void named_barrier_arrive(unsigned id, unsigned threads, std::source_location where);

/// Changes the number of registers that each thread of this warp may use. Called by all of its lanes. More than before
/// waits until others have given back enough. Ends the launch with a report if the number grows where it should shrink,
/// or shrinks where it should grow, and if the block ends with warps of a warpgroup that differ.
void change_registers(unsigned registers, bool increase, std::source_location where);

}  // namespace emulator
