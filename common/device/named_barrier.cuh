#pragma once
/// @file
/// Barriers for some of a block's warps. A block has 15 of them beside the one of __syncthreads(), and they are told
/// apart by their numbers.
///
/// A barrier opens when `threads` threads have come, those that wait and those that only arrive together. So one group
/// of warps can tell another that it has finished, and go on:
///
///     writers:  store(...); arrive_at_named_barrier(1, 256);
///     readers:  wait_at_named_barrier(1, 256); load(...);
///
/// All lanes of a warp call, and all threads give the same `threads`, a multiple of 32. Where they do not, it is
/// undefined on a GPU; on the emulator it ends the launch with a report, and so do threads that never come.
///
/// Source: PTX ISA, "Parallel synchronization and communication instructions: bar, barrier".

#include <cuda_runtime.h>

#include "common/device/source_location.hpp"
#include "common/device/trace.cuh"

#if TUTORIAL_EMULATOR
#include <emulator/warp_roles.hpp>
#endif

namespace tutorial {

/// Arrives, and waits until all have come. What they did before is visible afterwards.
/// @param id 1 to 15
/// @param threads those that wait and those that arrive
__device__ __forceinline__ void wait_at_named_barrier(
    unsigned id, unsigned threads, [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  [[maybe_unused]] const trace::Wait traced(trace::Kind::named_wait, where, trace::Object::numbered(id), threads / 32);
#if TUTORIAL_EMULATOR
  emulator::named_barrier_sync(id, threads, where);
#else
  asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(threads) : "memory");
#endif
}

/// Arrives without waiting; see wait_at_named_barrier().
__device__ __forceinline__ void arrive_at_named_barrier(
    unsigned id, unsigned threads, [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  trace::note(trace::Kind::named_arrive, where, trace::Object::numbered(id), threads / 32);
#if TUTORIAL_EMULATOR
  emulator::named_barrier_arrive(id, threads, where);
#else
  asm volatile("bar.arrive %0, %1;" : : "r"(id), "r"(threads) : "memory");
#endif
}

}  // namespace tutorial
