#pragma once
/// @file
/// Global and dynamic shared memory as the kernels see them. On the emulator bytes are counted and alignment is
/// checked; on a GPU the functions are a load, a store and a cast. An address is aligned to its type: at another one a
/// GPU ends the kernel, and so does the emulator, with a report. An address outside of its memory is undefined, as in
/// CUDA; on the emulator AddressSanitizer finds it.

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "common/device/eviction.hpp"
#include "common/device/source_location.hpp"

#if TUTORIAL_EMULATOR
#include <emulator/counters.hpp>
#include <emulator/shared.hpp>

#include "common/device/alignment.hpp"
#endif

namespace tutorial {

/// Reads a value of 1 to 16 bytes from device memory that nobody writes while the kernel runs.
///
/// That promise is passed on to the compiler: __ldg goes through the read-only path, and may be moved past stores and
/// barriers. What other threads write in the same kernel is read by an ordinary dereference after a barrier, or by
/// load_acquire().
template <class T>
__device__ __forceinline__ T load_global(const T* address,
                                         [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  static_assert(std::is_trivially_destructible_v<T> && sizeof(T) <= 16);
#if TUTORIAL_EMULATOR
  check_alignment(address, alignof(T), where);
  emulator::count_global_read(sizeof(T));
  return *address;
#else
  if constexpr (requires { __ldg(address); }) {  // it exists for CUDA's own types
    return __ldg(address);
  } else {
    return *address;
  }
#endif
}

/// Reads a value of 1 to 16 bytes that the same thread, and no other, writes later in the kernel: what is updated in
/// place. Or one that the previous kernel has written, after wait_for_previous_kernel(). An ordinary load, as
/// load_global() would promise too much.
template <class T>
__device__ __forceinline__ T load_for_update(const T* address,
                                             [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  static_assert(std::is_trivially_destructible_v<T> && sizeof(T) <= 16);
#if TUTORIAL_EMULATOR
  check_alignment(address, alignof(T), where);
  emulator::count_global_read(sizeof(T));
#endif
  return *address;
}

/// As load_for_update(), of 4 bytes, at the place where it is called. The compiler likes to move an ordinary load down to
/// the first use of its value, to save registers, and the use then waits for memory.
__device__ __forceinline__ std::uint32_t load_early(const std::uint32_t* address) {
#if TUTORIAL_EMULATOR
  return load_for_update(address);
#else
  std::uint32_t value;
  asm volatile("ld.global.b32 %0, [%1];" : "=r"(value) : "l"(address));
  return value;
#endif
}

/// Writes a value of 1 to 16 bytes to device memory.
template <class T>
__device__ __forceinline__ void store_global(T* address, std::type_identity_t<T> value,
                                             [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  static_assert(std::is_trivially_destructible_v<T> && sizeof(T) <= 16);
#if TUTORIAL_EMULATOR
  check_alignment(address, alignof(T), where);
  emulator::count_global_write(sizeof(T));
#endif
  *address = value;
}

/// The same for one of CUDA's own types, with a hint.
/// @param eviction kNormal or kFirst
template <class T>
__device__ __forceinline__ void store_global(T* address, std::type_identity_t<T> value,
                                             [[maybe_unused]] Eviction eviction,
                                             [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
#if TUTORIAL_EMULATOR
  store_global(address, value, where);
#else
  eviction == Eviction::kFirst ? __stcs(address, value) : store_global(address, value);
#endif
}

/// Brings the 128 bytes around an address of device memory to the second-level cache, where a load finds them sooner.
/// Nothing waits for it. The emulator has no cache.
/// Source: PTX ISA, "Data Movement and Conversion Instructions: prefetch".
__device__ __forceinline__ void prefetch_global([[maybe_unused]] const void* address) {
#if !TUTORIAL_EMULATOR
  asm volatile("prefetch.global.L2 [%0];" : : "l"(address));
#endif
}

/// The block's dynamic shared memory, LaunchConfig::shared_bytes of it. Every call returns the same address; a kernel
/// with several arrays divides the memory among them. Of a launch that asked for none it may not be used; there the
/// emulator gives nullptr.
/// @tparam kAlignment of the address, in bytes: 128, or 1024 as the tiles of bulk copies need it. The same in all calls
/// of a kernel
template <class T, int kAlignment = 128>
__device__ __forceinline__ T* dynamic_shared() {
  static_assert(kAlignment == 128 || kAlignment == 1024);
#if TUTORIAL_EMULATOR
  return static_cast<T*>(emulator::dynamic_shared());
#else
  if constexpr (kAlignment == 1024) {
    extern __shared__ __align__(1024) unsigned char tutorial_dynamic_shared_1024[];
    return reinterpret_cast<T*>(tutorial_dynamic_shared_1024);
  }
  extern __shared__ __align__(128) unsigned char tutorial_dynamic_shared[];
  return reinterpret_cast<T*>(tutorial_dynamic_shared);
#endif
}

}  // namespace tutorial
