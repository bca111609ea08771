#pragma once
/// @file
/// Clusters: blocks that run at the same time on neighbouring multiprocessors, and reach into each other's shared
/// memory. For GPUs of compute capability 9.0 and later.
///
/// LaunchConfig::cluster makes them. A block may reach into another one after the cluster's first barrier, because
/// until then that one may not have started, and before that one ends:
///
///     if (threadIdx.x == 0) {
///       full.init(1);
///       fence_barrier_init();
///     }
///     cluster_sync();                             // all blocks run, and their barriers are initialised
///     float* theirs = peer_shared(mine, peer);
///     theirs[threadIdx.x] = 1;                    // an ordinary store, to the other block's `mine`
///     cluster_sync();
///     use(mine[threadIdx.x]);
///     cluster_sync();                             // no block ends while another one reaches into it
///
/// Beside this there are arrivals at another block's barriers (Barrier::arrive_at()), copies into another block
/// (push_shared.cuh) and loads into several blocks at once (load_tile_multicast()).
///
/// The emulator insists on both rules, and on dynamic shared memory: it has static __shared__ arrays only once for all
/// blocks of a cluster, and a kernel that writes to one ends with a report.
///
/// Source: PTX ISA, "Special registers: %cluster_ctarank, %cluster_nctarank", "barrier.cluster", "mapa".

#include <cuda_runtime.h>

#include "common/device/source_location.hpp"
#include "common/device/trace.cuh"

#if TUTORIAL_EMULATOR
#include <emulator/cluster.hpp>
#include <emulator/require.hpp>
#else
#include "common/device/architecture.cuh"
#endif

namespace tutorial {

/// The number of this block in its cluster, 0 to cluster_size() - 1. Blocks are counted along x first, then y, then z.
__device__ __forceinline__ unsigned cluster_rank([[maybe_unused]] SourceLocation where = SourceLocation::current()) {
#if TUTORIAL_EMULATOR
  emulator::require(emulator::Feature::bulk_copies, "%cluster_ctarank", where);
  return emulator::cluster_rank();
#elif TUTORIAL_SM90
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
#else
  __trap();
  return 0;
#endif
}

/// How many blocks the cluster has. 1 in a launch without clusters.
__device__ __forceinline__ unsigned cluster_size([[maybe_unused]] SourceLocation where = SourceLocation::current()) {
#if TUTORIAL_EMULATOR
  emulator::require(emulator::Feature::bulk_copies, "%cluster_nctarank", where);
  return emulator::cluster_size();
#elif TUTORIAL_SM90
  unsigned size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
#else
  __trap();
  return 0;
#endif
}

/// Arrives at the barrier of all threads of the cluster, without waiting. What this thread did before is visible to
/// those that have waited. Each thread waits, with cluster_wait(), before it arrives again. Lanes of a warp may come
/// from different lines, one after the other: this is not the `.aligned` form of the instruction.
__device__ __forceinline__ void cluster_arrive([[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  trace::note(trace::Kind::cluster_arrive, where);
#if TUTORIAL_EMULATOR
  emulator::cluster_arrive(where);
#elif TUTORIAL_SM90
  asm volatile("barrier.cluster.arrive.release;" : : : "memory");
#else
  __trap();
#endif
}

/// Waits until all threads of the cluster have arrived as often as this one has. On a GPU a thread that has ended
/// counts as one that has arrived. The emulator misses it, as for __syncthreads().
__device__ __forceinline__ void cluster_wait([[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  [[maybe_unused]] const trace::Wait traced(trace::Kind::cluster_wait, where);
#if TUTORIAL_EMULATOR
  emulator::cluster_wait(where);
#elif TUTORIAL_SM90
  asm volatile("barrier.cluster.wait.acquire;" : : : "memory");
#else
  __trap();
#endif
}

/// Arrives and waits: __syncthreads() for all threads of the cluster.
__device__ __forceinline__ void cluster_sync([[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  cluster_arrive(where);
  cluster_wait(where);
}

/// The address at which a thread of this block finds another block's copy of an array, for ordinary loads and stores.
/// Called after the cluster's first barrier. Bulk copies of the other block do not see what is stored there, because
/// fence_async_proxy() is for a block's own shared memory.
/// @param mine the address in this block's dynamic shared memory
/// @param rank the block, which has not ended; this one's own rank gives `mine`
template <class T>
__device__ __forceinline__ T* peer_shared(T* mine, unsigned rank,
                                          [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
#if TUTORIAL_EMULATOR
  return emulator::peer_address(mine, rank, where);
#elif TUTORIAL_SM90
  T* theirs;
  asm("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(mine), "r"(rank));
  return theirs;
#else
  (void)rank;
  __trap();
  return mine;
#endif
}

}  // namespace tutorial
