#pragma once
/// @file
/// Registers that change hands while a kernel runs: warps that only load give some back, and warps that compute get
/// them. For sm_90a.
///
/// A kernel starts with the same number for all threads: of the 65536 of a multiprocessor 168 each for 384 threads, 128
/// for 512. All four warps of a warpgroup call the same function with the same number. An increase waits until other
/// warps have given back enough, so the sum over all warpgroups has to fit into what the launch has allocated.
///
/// Source: PTX ISA, "Miscellaneous instructions: setmaxnreg".

#include <cuda_runtime.h>

#include "common/device/source_location.hpp"
#include "common/device/trace.cuh"

#if TUTORIAL_EMULATOR
#include <emulator/warp_roles.hpp>
#else
#include "common/device/architecture.cuh"
#endif

namespace tutorial {

/// From now on each thread of this warp uses at most kRegisters, fewer than before.
template <int kRegisters>
__device__ __forceinline__ void decrease_registers([[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
  [[maybe_unused]] const trace::Wait traced(trace::Kind::registers, where, {}, kRegisters / 8);
#if TUTORIAL_EMULATOR
  emulator::change_registers(kRegisters, false, where);
#elif TUTORIAL_SM90A
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(kRegisters));
#else
  __trap();
#endif
}

/// From now on each thread of this warp may use kRegisters, more than before. Waits until there are enough: forever on
/// a GPU, if there never are. On the emulator the launch then ends with a report.
template <int kRegisters>
__device__ __forceinline__ void increase_registers([[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
  [[maybe_unused]] const trace::Wait traced(trace::Kind::registers, where, {}, kRegisters / 8);
#if TUTORIAL_EMULATOR
  emulator::change_registers(kRegisters, true, where);
#elif TUTORIAL_SM90A
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(kRegisters));
#else
  __trap();
#endif
}

}  // namespace tutorial
