#pragma once
/// @file
/// The fence between the stores of threads to shared memory and the bulk copies or products of warpgroups (wgmma.cuh)
/// that read it. For GPUs of compute capability 9.0 and later.
///
/// Both reach shared memory by a way of their own, the async proxy, and may miss what a thread has just stored. Each
/// thread that has stored part of a tile calls the fence, then a barrier, and then one thread issues the copy, or a
/// warpgroup the product:
///
///     store_for_copies(&tile[i], value);          // or stmatrix()
///     fence_async_proxy();
///     __syncthreads();
///     if (threadIdx.x == 0) store_tile(map, tile, {...});
///
/// The emulator keeps a second image of dynamic shared memory, the one that copies and products see. It is NaN at
/// first. Bulk loads write it, and the fence takes to it what its thread has written by store_for_copies() or
/// stmatrix(). Ordinary stores never reach it, so that a missing fence shows in every run.
///
/// Source: PTX ISA, "Memory consistency model: proxies", and "membar, fence: fence.proxy.async".

#include <cuda_runtime.h>

#include <type_traits>

#include "common/device/source_location.hpp"

#if TUTORIAL_EMULATOR
#include <emulator/async_proxy.hpp>
#else
#include "common/device/architecture.cuh"
#endif

namespace tutorial {

/// Writes a value of 1 to 16 bytes to shared memory that a bulk copy or a product reads later: an ordinary store on a
/// GPU.
template <class T>
__device__ __forceinline__ void store_for_copies(T* address, std::type_identity_t<T> value) {
#if TUTORIAL_EMULATOR
  emulator::write_for_async_proxy(address, value);
#else
  *address = value;
#endif
}

/// Bulk copies and products that come later see what this thread has written to shared memory.
__device__ __forceinline__ void fence_async_proxy([[maybe_unused]] SourceLocation where = SourceLocation::current()) {
#if TUTORIAL_EMULATOR
  emulator::fence_async_proxy(where);
#elif TUTORIAL_SM90
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
#else
  __trap();
#endif
}

}  // namespace tutorial
