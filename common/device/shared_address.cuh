#pragma once
/// @file
/// GPU only: addresses as the instructions for shared memory want them.

#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/architecture.cuh"

namespace tutorial {

/// A pointer to shared memory as a 32-bit offset into it in bytes, for the "r" operands of inline PTX. Undefined for
/// pointers to other memory.
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

#if TUTORIAL_SM90
/// The same offset in the shared memory of block `rank` of the cluster, for the "r" operands of instructions that take
/// addresses in all blocks of the cluster (shared::cluster).
__device__ __forceinline__ std::uint32_t peer_shared_address(const void* pointer, unsigned rank) {
  std::uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(pointer)), "r"(rank));
  return address;
}
#endif

}  // namespace tutorial
