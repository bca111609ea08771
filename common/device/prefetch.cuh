#pragma once
/// @file
/// Loads that only bring data closer.

#include <cuda_runtime.h>

#if !TUTORIAL_EMULATOR
#include "common/device/architecture.cuh"
#endif

namespace tutorial {

/// Starts to bring a piece of global memory into the second-level cache, for loads that follow later. On GPUs before
/// compute capability 9.0 and on the emulator it does nothing.
/// @param address aligned to 16 bytes
/// @param bytes a multiple of 16
/// Source: PTX ISA, "cp.async.bulk.prefetch".
__device__ __forceinline__ void prefetch_global([[maybe_unused]] const void* address, [[maybe_unused]] unsigned bytes) {
#if !TUTORIAL_EMULATOR && TUTORIAL_SM90
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" : : "l"(address), "r"(bytes) : "memory");
#endif
}

}  // namespace tutorial
