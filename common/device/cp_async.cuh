#pragma once
/// @file
/// Copies from global to shared memory that run while the thread goes on, without passing through its registers.
///
/// A thread issues copies, closes what it has issued into a group, and later waits for groups, the oldest first:
///
///     load(stage 0); cp_async_commit();            // group 0
///     load(stage 1); cp_async_commit();            // group 1
///     for each stage n:
///       cp_async_wait<1>();                        // all but the newest group: stage n is here,
///       __syncthreads();                           // and so are the parts that other threads have copied
///       compute(stage n);
///       __syncthreads();                           // before anybody overwrites it
///       load(stage n + 2); cp_async_commit();      // an empty group near the end keeps the count right
///
/// Waiting makes a thread's own copies visible to itself alone: a barrier passes them on. A copy that has not been
/// committed belongs to no group, so no wait waits for it.
///
/// The emulator reads the source when the copy is issued and leaves NaNs (0xFF) in the destination until the group is
/// waited for. Copies never waited for never arrive.
///
/// Source: PTX ISA, "Data movement and conversion instructions: cp.async", ".commit_group", ".wait_group".

#include <cuda_runtime.h>

#include "common/device/source_location.hpp"
#include "common/device/trace.cuh"

#if TUTORIAL_EMULATOR
#include <emulator/async_copy.hpp>
#include <emulator/counters.hpp>

#include "common/device/alignment.hpp"
#else
#include "common/device/shared_address.cuh"
#endif

namespace tutorial {

/// Starts a copy of kBytes bytes. Misaligned addresses end the kernel; on the emulator with a report.
/// @tparam kBytes 4, 8 or 16; with 16 the copy goes past the L1 cache
/// @param shared destination in shared memory, aligned to kBytes
/// @param global source in device memory, aligned to kBytes
/// @param valid if false, nothing is read and the destination becomes zeros: for rows past the end of a tensor
template <int kBytes>
__device__ __forceinline__ void cp_async(void* shared, const void* global, bool valid = true,
                                         [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
#if TUTORIAL_EMULATOR
  check_alignment(shared, kBytes, where);
  check_alignment(global, kBytes, where);
  if (valid) emulator::count_global_read(kBytes);
  emulator::issue_async_copy<kBytes>(shared, valid ? global : nullptr, where);
#else
  const int source_bytes = valid ? kBytes : 0;  // what is missing up to kBytes is filled with zeros
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(shared)), "l"(global), "r"(source_bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :
                 : "r"(shared_address(shared)), "l"(global), "n"(kBytes), "r"(source_bytes)
                 : "memory");
  }
#endif
}

/// Closes the copies that this thread has issued since the last commit into a group, which may be empty.
__device__ __forceinline__ void cp_async_commit([[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  trace::note(trace::Kind::commit_copies, where);
#if TUTORIAL_EMULATOR
  emulator::commit_async_copies(where);
#else
  asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

/// Waits until at most kPending of this thread's groups, the newest ones, are still under way.
template <int kPending>
__device__ __forceinline__ void cp_async_wait([[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  static_assert(kPending >= 0);
  [[maybe_unused]] const trace::Wait traced(trace::Kind::wait_copies, where, {}, kPending);
#if TUTORIAL_EMULATOR
  emulator::finish_async_copies(kPending, where);
#else
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
#endif
}

}  // namespace tutorial
