#pragma once
/// @file
/// How blocks of one kernel hand data to each other: the giver writes the data and then releases a flag; the taker
/// acquires the flag and then reads the data. (cuda::atomic_ref does the same, but the emulator does not have it.)
///
/// Addresses are in device memory and aligned to the size of what is read or written; a GPU ends the kernel at another
/// one, the emulator does not check here, and counts no bytes.
///
/// Source: PTX ISA, "Memory Consistency Model: Release and Acquire Patterns"; ld and st with .acquire, .release and
/// .relaxed at the scope .gpu.

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#if TUTORIAL_EMULATOR
#include <atomic>
#include <thread>
#endif

namespace tutorial {

/// Reads *address. If it finds what a store_release() has stored, then all that the storing thread wrote before is seen
/// by what this thread reads after.
/// @tparam T an integer of 4 or 8 bytes
template <class T>
__device__ __forceinline__ T load_acquire(const T* address) {
  static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
#if TUTORIAL_EMULATOR
  return std::atomic_ref<T>(*const_cast<T*>(address)).load(std::memory_order_acquire);
#else
  if constexpr (sizeof(T) == 4) {
    std::uint32_t value;
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return static_cast<T>(value);
  } else {
    std::uint64_t value;
    asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
    return static_cast<T>(value);
  }
#endif
}

/// Writes *address after all that this thread wrote before. What other threads of the block wrote is included if a
/// barrier stands between.
/// @tparam T an integer of 4 or 8 bytes
template <class T>
__device__ __forceinline__ void store_release(T* address, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
#if TUTORIAL_EMULATOR
  std::atomic_ref<T>(*address).store(value, std::memory_order_release);
#else
  if constexpr (sizeof(T) == 4) {
    asm volatile("st.release.gpu.u32 [%0], %1;" : : "l"(address), "r"(static_cast<std::uint32_t>(value)) : "memory");
  } else {
    asm volatile("st.release.gpu.u64 [%0], %1;" : : "l"(address), "l"(static_cast<std::uint64_t>(value)) : "memory");
  }
#endif
}

/// Reads *address, which other blocks may write meanwhile, at once and whole. It orders nothing else: for a word that
/// is itself all that is handed over. Several such loads may be under way together; a load_acquire() holds up what
/// follows.
/// @tparam T an integer of 4 or 8 bytes
template <class T>
__device__ __forceinline__ T load_relaxed(const T* address) {
  static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
#if TUTORIAL_EMULATOR
  return std::atomic_ref<T>(*const_cast<T*>(address)).load(std::memory_order_relaxed);
#else
  if constexpr (sizeof(T) == 4) {
    std::uint32_t value;
    asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return static_cast<T>(value);
  } else {
    std::uint64_t value;
    asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
    return static_cast<T>(value);
  }
#endif
}

/// Two neighbouring words.
struct WordPair {
  std::uint64_t first, second;
};

/// Reads two words as two load_relaxed() would, in one trip to memory: each is whole, but one may be older than the
/// other.
/// @param address of the first, aligned to 16 bytes
__device__ __forceinline__ WordPair load_relaxed_pair(const std::uint64_t* address) {
#if TUTORIAL_EMULATOR
  return {load_relaxed(address), load_relaxed(address + 1)};
#else
  WordPair pair;
  asm volatile("ld.relaxed.gpu.v2.u64 {%0, %1}, [%2];" : "=l"(pair.first), "=l"(pair.second) : "l"(address) : "memory");
  return pair;
#endif
}

/// Writes *address, which other blocks may read meanwhile, at once and whole. It orders nothing else.
/// @tparam T an integer of 4 or 8 bytes
template <class T>
__device__ __forceinline__ void store_relaxed(T* address, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
#if TUTORIAL_EMULATOR
  std::atomic_ref<T>(*address).store(value, std::memory_order_relaxed);
#else
  if constexpr (sizeof(T) == 4) {
    asm volatile("st.relaxed.gpu.u32 [%0], %1;" : : "l"(address), "r"(static_cast<std::uint32_t>(value)) : "memory");
  } else {
    asm volatile("st.relaxed.gpu.u64 [%0], %1;" : : "l"(address), "l"(static_cast<std::uint64_t>(value)) : "memory");
  }
#endif
}

/// Lets others run for a moment. Every loop that waits for another block must call it: on the emulator the block waited
/// for may need this OS thread, and the threads of one's own block surely do.
__device__ __forceinline__ void backoff() {
  __nanosleep(20);
#if TUTORIAL_EMULATOR
  std::this_thread::yield();
#endif
}

/// Reads *address with load_acquire() until ready(value) holds, and returns that value.
///
/// Only for blocks that are sure to have started: CUDA and the emulator start blocks in any order and run only some at
/// a time. So a block takes its number from a counter in device memory (`atomicAdd(&counter, 1)`, not blockIdx), and
/// waits for smaller numbers only. A value that never becomes ready is a kernel that never ends.
/// @tparam T an integer of 4 or 8 bytes
/// @param ready ready(value) is a bool; called once for each load
template <class T, class Ready>
__device__ __forceinline__ T wait_until(const T* address, Ready ready) {
  for (;;) {
    const T value = load_acquire(address);
    if (ready(value)) return value;
    backoff();
  }
}

}  // namespace tutorial
