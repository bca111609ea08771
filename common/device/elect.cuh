#pragma once
/// @file
/// One lane of a warp, for what one thread does for all: a bulk copy, an arrival.
///
/// Source: PTX ISA, "Parallel synchronization and communication instructions: elect.sync".

#include <cuda_runtime.h>

#include "common/device/source_location.hpp"

#if TUTORIAL_EMULATOR
#include <emulator/require.hpp>
#include <emulator/warp_gather.hpp>
#else
#include "common/device/architecture.cuh"
#endif

namespace tutorial {

/// True in one lane of the warp, the same one in each call. Which one is not specified: it is the last on the emulator,
/// so that a kernel that takes it for lane 0 is found out. Called by all lanes. In contrast to `lane == 0` the compiler
/// knows that a single lane goes on. For GPUs of compute capability 9.0 and later.
__device__ __forceinline__ bool elect_one([[maybe_unused]] SourceLocation where = SourceLocation::current()) {
#if TUTORIAL_EMULATOR
  emulator::require(emulator::Feature::bulk_copies, "elect", where);
  emulator::gather(~0u, char{}, where);
  const unsigned lanes = emulator::existing_lanes();
  return (lanes >> emulator::lane()) == 1;
#elif TUTORIAL_SM90
  unsigned is_elected = 0;
  asm volatile(
      "{\n"
      ".reg .pred elected;\n"
      "elect.sync _|elected, 0xFFFFFFFF;\n"
      "selp.u32 %0, 1, 0, elected;\n"
      "}"
      : "=r"(is_elected));
  return is_elected != 0;
#else
  __trap();
  return false;
#endif
}

}  // namespace tutorial
