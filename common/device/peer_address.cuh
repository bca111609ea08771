#pragma once
/// @file
/// GPU only: addresses in the shared memory of another block of the cluster, as instructions want them.

#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/architecture.cuh"
#include "common/device/shared_address.cuh"

#if TUTORIAL_SM90

namespace tutorial {

/// The offset of shared_address() in the shared memory of block `rank` of the cluster, for the "r" operands of
/// instructions that take addresses in all blocks of the cluster (shared::cluster).
__device__ __forceinline__ std::uint32_t peer_shared_address(const void* pointer, unsigned rank) {
  std::uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(pointer)), "r"(rank));
  return address;
}

}  // namespace tutorial

#endif
