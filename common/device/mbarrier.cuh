#pragma once
/// @file
/// Barriers in shared memory that count arrivals and bytes. They let threads wait for bulk copies (bulk_copy.cuh) and
/// for each other, without stopping threads that have no part in it. For GPUs of compute capability 9.0 and later.
///
/// A barrier goes through phases 0, 1, 2, ... A phase ends when the threads have arrived as often as init() said, and
/// when all expected bytes have come. A thread that waits names the parity of the phase whose end it waits for. So a
/// wait for parity 1 passes at once on a new barrier: it is in phase 0, and the phase before counts as ended.
///
/// A ring of tiles needs two barriers per stage. `full` ends a phase when the stage has been filled, `empty` when its
/// readers are done with it. A Ring keeps both the stage and the parity:
///
///     __shared__ Barrier full[kStages], empty[kStages];
///     if (threadIdx.x == 0) {
///       for (int i = 0; i < kStages; ++i) full[i].init(1), empty[i].init(kReaders);
///       fence_barrier_init();
///     }
///     __syncthreads();
///     if (is_producer) {                                      // one thread
///       auto ring = Ring<kStages>::producer();
///       for each tile: {
///         ring.wait(empty);                                   // passes at once in the first round
///         full[ring.stage()].arrive_expect(bytes of the tile);
///         load_tile(..., full[ring.stage()], ...);
///         ring.advance();
///       }
///     } else {                                                // kReaders threads
///       auto ring = Ring<kStages>::consumer();
///       for each tile: {
///         ring.wait(full);
///         compute(stage ring.stage());
///         empty[ring.stage()].arrive();
///         ring.advance();
///       }
///     }
///
/// In a cluster (cluster.cuh) threads of other blocks arrive with arrive_at(), and then the block's own threads wait
/// with wait_cluster(). Both cost more than arrive() and wait(): on Hopper a fence for the whole GPU before the
/// arrival, and the first-level cache is emptied after the wait.
///
/// On the emulator a kernel that waits in vain ends with a report of what is missing.
///
/// Source: PTX ISA, "Parallel synchronization and communication instructions: mbarrier".

#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/source_location.hpp"
#include "common/device/trace.cuh"

#if TUTORIAL_EMULATOR
#include <emulator/mbarrier.hpp>
#else
#include "common/device/architecture.cuh"
#include "common/device/peer_address.cuh"
#include "common/device/shared_address.cuh"
#endif

namespace tutorial {

/// A barrier of 8 bytes, a `__shared__` variable or part of dynamic shared memory. It has no constructor, because
/// shared variables cannot have one. Using it before init(), and more arrivals than that has announced, are undefined
/// on a GPU; on the emulator they end the launch with a report.
class Barrier {
 public:
  /// Begins phase 0. One thread calls this, and afterwards fence_barrier_init(). Then the block passes a barrier, such
  /// as __syncthreads(), before any other thread uses this one.
  /// @param count arrivals that end a phase, 1 to 2^20 - 1
  __device__ __forceinline__ void init(unsigned count,
                                       [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
    trace::note(trace::Kind::init, where, trace::Object::at(&state_), count);
#if TUTORIAL_EMULATOR
    emulator::mbarrier_init(&state_, count, where);
#elif TUTORIAL_SM90
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(shared_address(&state_)), "r"(count) : "memory");
#else
    (void)count;
    __trap();
#endif
  }

  /// Arrives once at the current phase. What this thread did before is visible to threads that have waited for the end
  /// of the phase.
  __device__ __forceinline__ void arrive([[maybe_unused]] SourceLocation where = SourceLocation::current()) {
    trace::note(trace::Kind::arrive, where, trace::Object::at(&state_));
#if TUTORIAL_EMULATOR
    emulator::mbarrier_arrive(&state_, 0, where);
#elif TUTORIAL_SM90
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(shared_address(&state_)) : "memory");
#else
    __trap();
#endif
  }

  /// Arrives once, and makes the current phase wait for `bytes` more bytes. Bulk copies count them down.
  /// @param bytes less than 2^20. The bytes of whole tiles, with rows outside of the tensor
  __device__ __forceinline__ void arrive_expect(unsigned bytes,
                                                [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
    trace::note(trace::Kind::expect, where, trace::Object::at(&state_), bytes);
#if TUTORIAL_EMULATOR
    emulator::mbarrier_arrive(&state_, bytes, where);
#elif TUTORIAL_SM90
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(shared_address(&state_)), "r"(bytes)
                 : "memory");
#else
    (void)bytes;
    __trap();
#endif
  }

  /// Arrives once at the barrier that another block of the cluster has at the same offset in its shared memory. What
  /// this thread did before is visible to threads of that block that have waited with wait_cluster(). Called after the
  /// cluster's first barrier, which comes after that block's init().
  /// @param rank of the block, which has not ended; the own rank is allowed
  __device__ __forceinline__ void arrive_at(unsigned rank,
                                            [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
    trace::note(trace::Kind::arrive, where, trace::Object::of_block(&state_, rank));
#if TUTORIAL_EMULATOR
    emulator::mbarrier_arrive_at(&state_, rank, where);
#elif TUTORIAL_SM90
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];"
                 :
                 : "r"(peer_shared_address(&state_, rank))
                 : "memory");
#else
    (void)rank;
    __trap();
#endif
  }

  /// Waits until a phase of this parity has ended: returns at once if the current phase has the other parity. Ring
  /// keeps the parity. Where threads of another block have arrived, or have pushed data (push_shared.cuh), it takes
  /// wait_cluster(). The emulator insists on it. Multicasts of another block (bulk_copy.cuh) are not of that kind: the
  /// data come from device memory.
  __device__ __forceinline__ void wait(unsigned parity,
                                       [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
    [[maybe_unused]] const trace::Wait traced(trace::Kind::wait, where, trace::Object::at(&state_), 0, parity);
#if TUTORIAL_EMULATOR
    emulator::mbarrier_wait(&state_, parity, where);
#elif TUTORIAL_SM90
    unsigned has_ended = 0;
    while (!has_ended) {  // the instruction itself gives up after some time
      asm volatile(
          "{\n"
          ".reg .pred ended;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
          "selp.u32 %0, 1, 0, ended;\n"
          "}"
          : "=r"(has_ended)
          : "r"(shared_address(&state_)), "r"(parity)
          : "memory");
    }
#else
    (void)parity;
    __trap();
#endif
  }

  /// wait() for a phase at which threads of other blocks of the cluster have arrived: it makes visible what they did.
  __device__ __forceinline__ void wait_cluster(unsigned parity,
                                               [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
    [[maybe_unused]] const trace::Wait traced(trace::Kind::wait, where, trace::Object::at(&state_), 0, parity);
#if TUTORIAL_EMULATOR
    emulator::mbarrier_wait_cluster(&state_, parity, where);
#elif TUTORIAL_SM90
    unsigned has_ended = 0;
    while (!has_ended) {
      asm volatile(
          "{\n"
          ".reg .pred ended;\n"
          "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 ended, [%1], %2;\n"
          "selp.u32 %0, 1, 0, ended;\n"
          "}"
          : "=r"(has_ended)
          : "r"(shared_address(&state_)), "r"(parity)
          : "memory");
    }
#else
    (void)parity;
    __trap();
#endif
  }

  /// The 8 bytes, for the instructions that name a barrier.
  __device__ __forceinline__ std::uint64_t* state() {
    return &state_;
  }

 private:
  std::uint64_t state_;
};

/// Makes barriers that this thread has initialised known to bulk copies and to other blocks of the cluster. Called by
/// that thread, once after all init(). The emulator insists on it.
__device__ __forceinline__ void fence_barrier_init([[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  trace::note_time(where);
#if TUTORIAL_EMULATOR
  emulator::mbarrier_fence_init(where);
#elif TUTORIAL_SM90
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
#else
  __trap();
#endif
}

/// Where a thread stands in a ring of stages: which stage is next, and the parity of the phase that it waits for.
template <int kStages>
class Ring {
  static_assert(kStages >= 1);

 public:
  /// For threads that wait for full stages: the first wait for a stage is for the end of its phase 0.
  __device__ static constexpr Ring consumer() { return Ring(0); }
  /// Where consumer() stands after `passed` stages. A loop that asks for it each time round keeps one number, not two.
  __device__ static constexpr Ring consumer(int passed) { return Ring(passed / kStages % 2, passed % kStages); }
  /// For threads that wait for empty stages. All stages are empty at first, so in the first round each wait is for the
  /// phase before phase 0 and passes at once.
  __device__ static constexpr Ring producer() { return Ring(1); }
  /// Where producer() stands after `passed` stages.
  __device__ static constexpr Ring producer(int passed) { return Ring(1 - passed / kStages % 2, passed % kStages); }

  /// Whether both have the same stage and parity.
  __device__ constexpr bool operator==(const Ring& other) const {
    return stage_ == other.stage_ && parity_ == other.parity_;
  }
  /// The stage that is next, 0 to kStages - 1.
  __device__ constexpr int stage() const { return stage_; }
  /// Waits for the barrier of that stage.
  __device__ __forceinline__ void wait(Barrier* barriers, SourceLocation where = SourceLocation::current()) const {
    barriers[stage_].wait(parity_, where);
  }
  /// The same with Barrier::wait_cluster().
  __device__ __forceinline__ void wait_cluster(Barrier* barriers,
                                               SourceLocation where = SourceLocation::current()) const {
    barriers[stage_].wait_cluster(parity_, where);
  }
  /// Goes on to the next stage. After the last stage the first comes again, in its next phase.
  __device__ constexpr void advance() {
    if (++stage_ < kStages) return;
    stage_ = 0;
    parity_ ^= 1;
  }

 private:
  __device__ constexpr explicit Ring(unsigned parity, int stage = 0) : stage_(stage), parity_(parity) {}

  int stage_;
  unsigned parity_;
};

}  // namespace tutorial
