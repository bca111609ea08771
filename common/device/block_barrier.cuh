#pragma once
/// @file
/// A barrier for all threads of a block whose warps do different things: each kind of warp calls it from a line of its
/// own, where __syncthreads() wants all threads at the same one.
///
/// Source: PTX ISA, "Parallel synchronization and communication instructions: barrier": a barrier is a number, not a
/// place, and warps arrive at it one by one.

#include <cuda_runtime.h>

#include "common/device/source_location.hpp"
#include "common/device/trace.cuh"

namespace tutorial {

/// Waits until all threads of the block have called this as often as the caller. Called by whole warps. A block of
/// which a thread never calls hangs on a GPU; on the emulator the launch ends with a report.
__device__ __forceinline__ void block_barrier([[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  [[maybe_unused]] const trace::Wait traced(trace::Kind::block_wait, where);
#if TUTORIAL_EMULATOR
  __syncthreads();  // at this line for all
#else
  asm volatile("barrier.sync 0;" : : : "memory");
#endif
}

}  // namespace tutorial
