#pragma once
/// @file
/// Hides from the compiler that a value does not change.

#include <cuda_runtime.h>

namespace tutorial {

/// `value`, of which the compiler knows nothing any more. What a loop derives from it (addresses, above all) is
/// computed again each time round, instead of being kept in registers from one round to the next: for kernels that
/// have arithmetic to spare, but not registers.
__device__ __forceinline__ int hide_from_compiler(int value) {
#if !TUTORIAL_EMULATOR
  asm volatile("" : "+r"(value));
#endif
  return value;
}

}  // namespace tutorial
