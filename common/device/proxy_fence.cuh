#pragma once
/// @file
/// The fence between what threads do in shared memory and what bulk copies or products of warpgroups (wgmma.cuh) do
/// there. For GPUs of compute capability 9.0 and later.
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
/// The same holds the other way round, for a tile that threads have read and a copy is to fill again. A barrier orders
/// what threads do, but a copy may be faster than a load that waits in a queue: behind the products of other warps,
/// ldmatrix has read the data of the next tile on an H200. So the thread that issues the copy calls the fence between
/// the wait and the copy:
///
///     ring.wait(empty);                           // all threads have issued their loads of the tile
///     fence_async_proxy();                        // and the tile is theirs until these are done
///     full[ring.stage()].arrive_expect(bytes);
///     load_tile(...);
///
/// A tile that only products read needs no fence: their wait is enough.
///
/// The emulator keeps a second image of dynamic shared memory, the one that copies and products see. It is NaN at
/// first. Bulk loads write it, and the fence takes to it what its thread has written by store_for_copies() or
/// stmatrix(). Ordinary stores never reach it, so that a missing fence shows in every run. It reports a copy that is
/// issued over rows that a thread has read by ldmatrix(), if neither of both threads has called the fence since.
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
