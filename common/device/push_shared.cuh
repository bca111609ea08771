#pragma once
/// @file
/// Copies from a block's shared memory to that of another block of its cluster. One thread issues a copy, and the
/// hardware does the rest. For GPUs of compute capability 9.0 and later.
///
/// The other block waits for it at its own barrier, which counts the bytes:
///
///     sender:    store_for_copies(&tile[i], value);               // all threads
///                fence_async_proxy();
///                __syncthreads();
///                if (threadIdx.x == 0) push_shared(inbox, tile, bytes, full, peer);
///     receiver:  if (threadIdx.x == 0) full.arrive_expect(bytes);
///                full.wait_cluster(0);
///                use(inbox[i]);
///
/// The sender may write to `tile` again, and may end, once the receiver has told it that the data have come: by
/// Barrier::arrive_at() or the cluster's barrier.
///
/// On the emulator the destination holds NaNs (0xFF) until a thread cannot go on without the data, and only then the
/// source is read. EMULATOR_ASYNC=early or random:SEED lets copies happen when they are issued.
///
/// Source: PTX ISA, "Data movement and conversion instructions: cp.async.bulk".

#include <cuda_runtime.h>

#include "common/device/mbarrier.cuh"
#include "common/device/source_location.hpp"
#include "common/device/trace.cuh"

#if TUTORIAL_EMULATOR
#include <emulator/cluster.hpp>
#include <emulator/push_shared.hpp>

#include "common/device/alignment.hpp"
#else
#include "common/device/architecture.cuh"
#include "common/device/peer_address.cuh"
#include "common/device/shared_address.cuh"
#endif

namespace tutorial {

/// Starts to copy `bytes` bytes to block `rank` of the cluster. Called by one thread, after the cluster's first
/// barrier. @param shared destination, named by the address of this block's own copy of it; aligned to 16 bytes
/// @param source in this block's shared memory, aligned to 16 bytes. Copies see it as fence_async_proxy() has left it;
/// the emulator ends the launch with a report if threads have stored something else there
/// @param bytes a multiple of 16, less than 2^20
/// @param barrier counts the bytes down when they have come: this block's own copy stands for that of block `rank`
/// @param rank of the block that gets the data, which has not ended. Not the block's own: a push of a block that is a
/// cluster by itself ended with an illegal instruction on an H200, and on the emulator it ends with a report
__device__ __forceinline__ void push_shared(void* shared, const void* source, unsigned bytes, Barrier& barrier,
                                            unsigned rank,
                                            [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  trace::note(trace::Kind::push, where, trace::Object::of_block(barrier.state(), rank), bytes);
#if TUTORIAL_EMULATOR
  check_alignment(shared, 16, where);
  check_alignment(source, 16, where);
  if (bytes % 16 != 0) emulator::trap("a push copies a multiple of 16 bytes", where);
  if (rank == emulator::cluster_rank()) emulator::trap("a push goes to another block of the cluster", where);
  emulator::issue_push(shared, source, bytes, barrier.state(), rank, where);
#elif TUTORIAL_SM90
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :
               : "r"(peer_shared_address(shared, rank)), "r"(shared_address(source)), "r"(bytes),
                 "r"(peer_shared_address(barrier.state(), rank))
               : "memory");
#else
  (void)shared, (void)source, (void)bytes, (void)barrier, (void)rank;
  __trap();
#endif
}

}  // namespace tutorial
