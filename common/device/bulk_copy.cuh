#pragma once
/// @file
/// Copies of whole tiles between global and shared memory. One thread issues a copy, and the hardware does the rest:
/// addresses, borders, and the permutation that avoids bank conflicts (tensor_map.hpp). For GPUs of compute capability
/// 9.0 and later.
///
/// A load is waited for at a barrier (mbarrier.cuh), which counts its bytes:
///
///     if (threadIdx.x == 0) {
///       full.arrive_expect(tile_bytes(64));
///       load_tile(keys, tile, full, {.column = 0, .position = t, .head = h, .batch = b});
///     }
///     full.wait(0);
///
/// Several blocks of a cluster can get the same tile with one read of device memory (load_tile_multicast()).
///
/// A store is waited for by the thread that has issued it, in groups, as with cp.async (cp_async.cuh):
///
///     store_tile(outputs, tile, {...});
///     commit_stores();
///     wait_stores_read<0>();             // now the tile may be overwritten
///     wait_stores<0>();                  // now the tensor has it
///
/// A thread waits at least for wait_stores_read<0>() before it ends, because shared memory ends with its block.
///
/// These copies do not see what threads have written to shared memory before those threads call fence_async_proxy()
/// (proxy_fence.cuh).
///
/// On the emulator a load's destination holds NaNs (0xFF) until a thread cannot go on without the data, and so does the
/// destination of a store. A store reads the tile when its thread waits for that. EMULATOR_ASYNC=early or random:SEED
/// lets copies happen when they are issued.
///
/// Source: PTX ISA, "Data movement and conversion instructions: cp.async.bulk.tensor", ".commit_group", ".wait_group".

#include <cuda_runtime.h>

#include "common/device/eviction.hpp"
#include "common/device/mbarrier.cuh"
#include "common/device/source_location.hpp"
#include "common/device/tensor_map.hpp"
#include "common/device/trace.cuh"

#if TUTORIAL_EMULATOR
#include <emulator/bulk_copy.hpp>

#include "common/device/alignment.hpp"
#else
#include "common/device/architecture.cuh"
#include "common/device/shared_address.cuh"
#endif

namespace tutorial {

/// The element of a tensor that a tile begins with. It may lie outside. For loads column and position may also be
/// negative, so that the tile begins before the first element; for stores they may not.
struct TileOrigin {
  int column = 0;    ///< of D
  int position = 0;  ///< of L
  int head = 0;      ///< of H
  int batch = 0;     ///< of B
};

/// What a tile in shared memory is aligned to, in bytes: the permutation repeats after eight rows.
inline constexpr unsigned kTileAlignment = 1024;

#if TUTORIAL_EMULATOR
/// The emulator's form of an origin.
inline emulator::TileStart tile_start(const TileOrigin& origin) {
  return {origin.column, origin.position, origin.head, origin.batch};
}
#endif

/// Brings a tensor map closer, so that the first copy does not wait for it. Called by one thread.
__device__ __forceinline__ void prefetch_map([[maybe_unused]] const TensorMap& map) {
#if !TUTORIAL_EMULATOR
#if TUTORIAL_SM90
  asm volatile("prefetch.tensormap [%0];" : : "l"(&map) : "memory");
#else
  __trap();
#endif
#endif
}

#if TUTORIAL_SM90 && !TUTORIAL_EMULATOR
/// The hint as copies take it, kFirst or kLast. Source: PTX ISA, "createpolicy".
__device__ __forceinline__ unsigned long long cache_policy(Eviction eviction) {
  unsigned long long policy;
  if (eviction == Eviction::kFirst) {
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  } else {
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  }
  return policy;
}
#endif

/// Starts to load a tile. Called by one thread.
/// @param map a kernel's `const __grid_constant__` parameter
/// @param shared destination of tile_bytes() bytes, aligned to kTileAlignment
/// @param barrier counts the bytes down when they have come. Its current phase has to expect them
/// @param eviction of the tile's lines in the second-level cache
__device__ __forceinline__ void load_tile(const TensorMap& map, void* shared, Barrier& barrier, TileOrigin origin,
                                          [[maybe_unused]] Eviction eviction = Eviction::kNormal,
                                          [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  trace::note(trace::Kind::load, where, trace::Object::at(barrier.state()));
#if TUTORIAL_EMULATOR
  check_alignment(shared, kTileAlignment, where);
  emulator::issue_bulk_load(map.map, tile_start(origin), shared, barrier.state(), where);
#elif TUTORIAL_SM90
  if (eviction != Eviction::kNormal) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%2, %3, %4, %5}], [%6], %7;"
        :
        : "r"(shared_address(shared)), "l"(&map), "r"(origin.column), "r"(origin.position), "r"(origin.head),
          "r"(origin.batch), "r"(shared_address(barrier.state())), "l"(cache_policy(eviction))
        : "memory");
    return;
  }
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];"
      :
      : "r"(shared_address(shared)), "l"(&map), "r"(origin.column), "r"(origin.position), "r"(origin.head),
        "r"(origin.batch), "r"(shared_address(barrier.state()))
      : "memory");
#else
  (void)map, (void)shared, (void)barrier, (void)origin;
  __trap();
#endif
}

/// Brings a tile to the second-level cache, so that a load_tile() of it later takes less time. Called by one thread.
__device__ __forceinline__ void prefetch_tile([[maybe_unused]] const TensorMap& map,
                                              [[maybe_unused]] TileOrigin origin) {
#if !TUTORIAL_EMULATOR
#if TUTORIAL_SM90
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];"
               :
               : "l"(&map), "r"(origin.column), "r"(origin.position), "r"(origin.head), "r"(origin.batch)
               : "memory");
#else
  __trap();
#endif
#endif
}

/// load_tile() into several blocks of the cluster at once: to the same offset in each, where the barrier at the same
/// offset counts the bytes. So each of these blocks expects the bytes of the whole tile, and each has told the one that
/// loads that its part of the ring is free (Barrier::arrive_at()). Called by one thread, after the cluster's first
/// barrier. The blocks have not ended. For Hopper alone, as products of warpgroups are: the compiler advises against it
/// elsewhere.
/// @param mask bit r stands for the block of rank r
__device__ __forceinline__ void load_tile_multicast(const TensorMap& map, void* shared, Barrier& barrier,
                                                    TileOrigin origin, unsigned mask,
                                                    [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  trace::note(trace::Kind::load, where, trace::Object::at(barrier.state()), mask);
#if TUTORIAL_EMULATOR
  check_alignment(shared, kTileAlignment, where);
  emulator::issue_bulk_multicast(map.map, tile_start(origin), shared, barrier.state(), mask, where);
#elif TUTORIAL_SM90A
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%2, %3, %4, %5}], [%6], %7;"
      :
      : "r"(shared_address(shared)), "l"(&map), "r"(origin.column), "r"(origin.position), "r"(origin.head),
        "r"(origin.batch), "r"(shared_address(barrier.state())), "h"(static_cast<unsigned short>(mask))
      : "memory");
#else
  (void)map, (void)shared, (void)barrier, (void)origin, (void)mask;
  __trap();
#endif
}

/// Starts to store a tile; elements outside of the tensor are not written. Called by one thread.
/// @param map a kernel's `const __grid_constant__` parameter
/// @param shared tile_bytes() bytes, aligned to kTileAlignment
/// @param origin neither its column nor its position is negative. Otherwise an H200 ends the kernel with "illegal
/// instruction", and the emulator ends the launch with a report
__device__ __forceinline__ void store_tile(const TensorMap& map, const void* shared, TileOrigin origin,
                                           [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  trace::note(trace::Kind::store, where);
#if TUTORIAL_EMULATOR
  check_alignment(shared, kTileAlignment, where);
  emulator::issue_bulk_store(map.map, tile_start(origin), shared, where);
#elif TUTORIAL_SM90
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];"
               :
               : "l"(&map), "r"(origin.column), "r"(origin.position), "r"(origin.head), "r"(origin.batch),
                 "r"(shared_address(shared))
               : "memory");
#else
  (void)map, (void)shared, (void)origin;
  __trap();
#endif
}

/// Closes the stores that this thread has issued since the last commit into a group, which may be empty. No wait waits
/// for a store that is in no group.
__device__ __forceinline__ void commit_stores([[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  trace::note(trace::Kind::commit_stores, where);
#if TUTORIAL_EMULATOR
  emulator::commit_bulk_stores(where);
#elif TUTORIAL_SM90
  asm volatile("cp.async.bulk.commit_group;" : : : "memory");
#else
  __trap();
#endif
}

/// Waits until all of this thread's groups but the kPending newest have read shared memory.
template <int kPending>
__device__ __forceinline__ void wait_stores_read([[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  static_assert(kPending >= 0);
  [[maybe_unused]] const trace::Wait traced(trace::Kind::wait_stores, where, {}, kPending);
#if TUTORIAL_EMULATOR
  emulator::read_bulk_stores(kPending, where);
#elif TUTORIAL_SM90
  asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"(kPending) : "memory");
#else
  __trap();
#endif
}

/// Waits until all of this thread's groups but the kPending newest have written the tensor. The thread then sees what
/// they have written.
template <int kPending>
__device__ __forceinline__ void wait_stores([[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  static_assert(kPending >= 0);
  [[maybe_unused]] const trace::Wait traced(trace::Kind::wait_stores, where, {}, kPending);
#if TUTORIAL_EMULATOR
  emulator::read_bulk_stores(kPending, where);
  emulator::write_bulk_stores(kPending, where);
#elif TUTORIAL_SM90
  asm volatile("cp.async.bulk.wait_group %0;" : : "n"(kPending) : "memory");
#else
  __trap();
#endif
}

}  // namespace tutorial
