#pragma once
/// @file
/// What the wrappers of this folder tell a trace (docs/trace.md). Without TUTORIAL_TRACE nothing is left of it: the
/// functions are empty, and a kernel has the machine code that it has without them. On the emulator, too: there the
/// emulator itself writes down what happens.
///
/// An event is 16 bytes: when, where in the source, what, and how long or how much. There is no counter of events, whose
/// loads and stores the kernel would wait for. Each warp has its own part of a buffer in device memory, and an event lies
/// at the place that its clock names: a quarter of the clock, modulo the part's size. So an event takes a warp a read of
/// the clock, some additions and a store that nothing waits for. Only the first of the lanes that are there stores:
/// 32 lanes with 16 bytes each would pass through the load-store unit in four parts.

#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/source_location.hpp"
#include "common/trace/kind.hpp"

#if TUTORIAL_TRACE
#include "common/device/shared_address.cuh"
#include "common/device/trace_target.hpp"
#endif

namespace tutorial::trace {

#if TUTORIAL_TRACE

namespace {

/// Where the kernels of this source write their events. Each source has its own, because sources are linked as they are.
__constant__ Target target;
const bool is_registered = register_target([](const Target& t) { return cudaMemcpyToSymbol(target, &t, sizeof t); });

}  // namespace

/// The barrier of an event.
struct Object {
  std::uint32_t bits = kOwnBlock << Packed::kPeerShift;

  /// In shared memory.
  static __device__ __forceinline__ Object at(const void* shared) { return of_block(shared, kOwnBlock); }
  /// At the same place in the block of this rank.
  static __device__ __forceinline__ Object of_block(const void* shared, unsigned rank) {
    return {rank << Packed::kPeerShift | Packed::place(shared_address(shared))};
  }
  /// With a number.
  static __device__ __forceinline__ Object numbered(unsigned number) {
    return {kOwnBlock << Packed::kPeerShift | number};
  }
};

/// The multiprocessor's clock.
__device__ __forceinline__ std::uint32_t clock_now() {
  std::uint32_t clock;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(clock));
  return clock;
}

/// Stores an event of the warp that ends at `clock`.
__device__ __forceinline__ void store_event(Kind kind, SourceLocation where, Object object, std::uint32_t clock,
                                            std::uint32_t value) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned warp = ((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x) / 32;
  unsigned long long grid;  // counts launches
  asm("mov.u64 %0, %%gridid;" : "=l"(grid));
  const unsigned part = (unsigned(grid) % kLaunches * target.blocks + block) * kWarps + warp;
  uint4* slot = target.slots + (std::size_t{part} << kLogSlots) + (clock / kClocksPerSlot) % (1u << kLogSlots);
  // The lanes that keep this one from storing: those before it, or all, where the block is not traced.
  std::uint32_t others;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(others));
  if (block >= target.blocks) others = ~0u;
  // Without a branch, which would end the compiler's view of the products around it.
  asm volatile(
      "{\n"
      ".reg .pred traced;\n"
      ".reg .u32 active;\n"
      "activemask.b32 active;\n"
      "and.b32 active, active, %5;\n"
      "setp.eq.u32 traced, active, 0;\n"
      "@traced st.global.v4.u32 [%0], {%1, %2, %3, %4};\n"
      "}"
      :
      : "l"(slot), "r"(clock), "r"(where.place), "r"(std::uint32_t(kind) << Packed::kKindShift | object.bits),
        "r"(value), "r"(others));
}

/// Something happens now. What the tool finds out without it is left out: each event costs time.
__device__ __forceinline__ void note(Kind kind, SourceLocation where, Object object = {}, std::uint32_t value = 0) {
  if (kind == Kind::arrive) value = __popc(__activemask());  // lanes
  if (kind != Kind::fence_products && kind != Kind::commit_stores) store_event(kind, where, object, clock_now(), value);
}

/// A wait lasts from here to the end of the scope.
class Wait {
 public:
  /// @param small a number below 64: of groups, warps, or steps of 8 registers
  /// @param parity of the phase
  __device__ __forceinline__ Wait(Kind kind, SourceLocation where, Object object = {}, unsigned small = 0,
                                  unsigned parity = 0)
      : kind_(kind),
        where_(where),
        object_{object.bits | parity << Packed::kParityShift},
        small_(small),
        begin_(clock_now()) {}
  __device__ __forceinline__ ~Wait() {
    const std::uint32_t end = clock_now();
    store_event(kind_, where_, object_, end, small_ << Packed::kSmallShift | (end - begin_));
  }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

 private:
  Kind kind_;
  SourceLocation where_;
  Object object_;
  unsigned small_;
  std::uint32_t begin_;
};

/// Joins the clock of this block's multiprocessor with the timer that all have. Called by one thread.
__device__ __forceinline__ void note_time(SourceLocation where) {
  std::uint32_t nanoseconds, multiprocessor;
  asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(nanoseconds));
  asm("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
  note(Kind::start, where, Object::numbered(multiprocessor), nanoseconds);
}

/// __syncthreads(), which CUDA has no place to add a hook to.
__device__ __forceinline__ void sync_block(SourceLocation where = SourceLocation::current()) {
  const Wait wait(Kind::block_wait, where);
  __syncthreads();
}
#else

struct Object {
  static __device__ __forceinline__ Object at(const void*) { return {}; }
  static __device__ __forceinline__ Object of_block(const void*, unsigned) { return {}; }
  static __device__ __forceinline__ Object numbered(unsigned) { return {}; }
};

__device__ __forceinline__ void note(Kind, SourceLocation, Object = {}, std::uint32_t = 0) {}
__device__ __forceinline__ void note_time(SourceLocation) {}

class Wait {
 public:
  __device__ __forceinline__ Wait(Kind, SourceLocation, Object = {}, unsigned = 0, unsigned = 0) {}
};

#endif

}  // namespace tutorial::trace

#if TUTORIAL_TRACE
/// With the option, a kernel's barriers of the block are written down, too.
#define __syncthreads() ::tutorial::trace::sync_block()
#endif
