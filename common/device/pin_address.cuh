#pragma once
/// @file
/// Keeps an address in registers.

#include <cuda_runtime.h>

namespace tutorial {

/// The same address in device memory, of which the compiler no longer knows how it was computed. So it keeps it in
/// registers and adds to it. Otherwise it may multiply strides anew at each use, to save registers.
template <class T>
__device__ __forceinline__ T* pinned(T* address) {
#if !TUTORIAL_EMULATOR
  asm volatile("" : "+l"(address));
  __builtin_assume(__isGlobal(address));
#endif
  return address;
}

}  // namespace tutorial
