#pragma once
/// @file
/// CUDA's declaration keywords. On one processor most of them have nothing to say.

// __noinline__ is not among them: the C++ library says __attribute__((__noinline__)).

#define __host__
#define __device__
#define __global__
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

// A GPU calls no function where it can help it. The emulator need not follow: kernels are as fast with calls, and the
// compiler takes a sixth to two thirds less. But where each access is told of, it is that of the line that calls.
#ifdef __SANITIZE_THREAD__
#define __forceinline__ inline __attribute__((always_inline))
#else
#define __forceinline__ inline
#endif

/// A variable that the threads of a block share. A worker thread of the emulator runs one block after the other, all
/// threads of it, so its own copy of a static variable is the block's. AddressSanitizer puts red zones around plain
/// statics only, not around thread_local ones: there a single worker runs all blocks (see common/emulator/README.md).
#ifdef EMULATOR_ASAN
#define __shared__ static
#else
#define __shared__ static thread_local
#endif
