#pragma once
/// @file
/// Kernels that start before the kernel before them has ended (LaunchConfig::starts_early), on GPUs of compute
/// capability 9.0 and later.
///
/// Usually the blocks of a kernel start when the last block of the kernel before has ended and its results are in
/// memory. A kernel with `starts_early` may start as soon as each block of the kernel before has called
/// let_next_kernel_start() or has ended, and where a multiprocessor has room for it. It does what does not depend on
/// that kernel, and calls wait_for_previous_kernel() before it touches what that kernel reads or writes.
///
///     launch(states, {...}, ...);          // calls let_next_kernel_start() at its beginning
///     LaunchConfig config(...);
///     config.starts_early = true;
///     launch(walk, config, ...);           // calls wait_for_previous_kernel() where it needs the states
///
/// The wait is only for the kernel before. If that one has waited, too, all kernels before it have ended as well; what
/// it does before its wait may still run beside the kernel before the last. After the wait the results are read by
/// ordinary loads, not by load_global(), which the compiler may move to a place before the wait.
///
/// The emulator runs one kernel after the other. There a missing wait shows in no result; its detector of races reports it.
///
/// Source: PTX ISA, "griddepcontrol"; CUDA C++ Programming Guide, "Programmatic Dependent Launch".

#include <cuda_runtime.h>

#include "common/device/source_location.hpp"
#include "common/device/trace.cuh"

#if TUTORIAL_EMULATOR
#include <emulator/early_start.hpp>
#else
#include "common/device/architecture.cuh"
#endif

namespace tutorial {

/// Says that the next kernel may start, as far as this block is concerned. It has no effect on what is computed.
__device__ __forceinline__ void let_next_kernel_start(
    [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  trace::note(trace::Kind::next_kernel, where);
#if TUTORIAL_EMULATOR
  emulator::let_next_kernel_start(where);
#elif TUTORIAL_SM90
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

/// Waits until the kernel before has ended and its results are visible to this thread. Returns at once in a kernel
/// without `starts_early`.
__device__ __forceinline__ void wait_for_previous_kernel(
    [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  [[maybe_unused]] const trace::Wait traced(trace::Kind::previous_kernel, where);
#if TUTORIAL_EMULATOR
  emulator::wait_for_previous_kernel(where);
#elif TUTORIAL_SM90
  asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

}  // namespace tutorial
