#pragma once
/// @file
/// The devices that the emulator pretends to have, all alike: of the card that EMULATOR_DEVICE names, an H200 unless it
/// is set. EMULATOR_DEVICES says how many there are, 2 unless it is set.
///
/// All functions return cudaSuccess or an error, which cudaGetLastError() gives once more: cudaErrorInvalidDevice for a
/// device that there is not, cudaErrorInvalidValue for a null pointer, an attribute that it does not know, a value out
/// of range or a bad setting in the environment. Memory is in bytes.

#include <cstddef>

#include "emulator/runtime_error.hpp"

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's

struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem;
  std::size_t sharedMemPerBlock;
  std::size_t sharedMemPerBlockOptin;
  std::size_t sharedMemPerMultiprocessor;
  std::size_t reservedSharedMemPerBlock;
  int regsPerBlock;
  int regsPerMultiprocessor;
  int warpSize;
  int maxThreadsPerBlock;
  int maxThreadsDim[3];
  int maxGridSize[3];
  int maxThreadsPerMultiProcessor;
  int maxBlocksPerMultiProcessor;
  int multiProcessorCount;
  int l2CacheSize;
  int major;
  int minor;
};

enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMaxRegistersPerBlock = 12,
  cudaDevAttrClockRate = 13,  // kHz
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMemoryClockRate = 36,       // kHz
  cudaDevAttrGlobalMemoryBusWidth = 37,  // bits
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxRegistersPerMultiprocessor = 82,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrMaxBlocksPerMultiprocessor = 106,
  cudaDevAttrReservedSharedMemoryPerBlock = 111,
};

/// What the emulator knows of a compiled kernel: its limits, neither its registers nor its static shared memory.
struct cudaFuncAttributes {
  std::size_t sharedSizeBytes;
  int maxThreadsPerBlock;
  int numRegs;
  int maxDynamicSharedSizeBytes;
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};

/// That of EMULATOR_DEVICES, read at each call, or 2.
cudaError_t cudaGetDeviceCount(int* count);
/// The current device of this host thread: 0 until cudaSetDevice() chooses another. Allocations, streams, events and
/// launches belong to the device that is current when they are made.
cudaError_t cudaGetDevice(int* device);
/// Chooses the current device of this host thread.
cudaError_t cudaSetDevice(int device);
/// Whether kernels of `device` may be allowed to access the memory of `peer`: 1 for any two devices, 0 for one and the
/// same.
cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer);
/// Allows kernels of the current device to access the memory of `peer`, for the whole process.
/// cudaErrorPeerAccessAlreadyEnabled if that is so already, cudaErrorInvalidDevice for the current device itself.
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
/// Takes that back. cudaErrorPeerAccessNotEnabled if it was not allowed.
cudaError_t cudaDeviceDisablePeerAccess(int peer);
/// Those of EMULATOR_DEVICE and EMULATOR_MULTIPROCESSORS, read at each call.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
/// One of the enumerators above, in its units.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
/// Waits for nothing: all work has ended when its call returns. During a capture cudaErrorStreamCaptureUnsupported.
cudaError_t cudaDeviceSynchronize();
// 13000: CUDA 13.0.
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDriverGetVersion(int* version);

/// The most dynamic shared memory of the kernel on the current device, up to what a block of it may have; the carve-out
/// is taken and ignored.
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
/// See cudaFuncAttributes.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);
/// How many blocks of the kernel a multiprocessor would hold at once, by threads, shared memory and number of blocks;
/// registers and static shared memory are not known.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                          std::size_t dynamic_shared_bytes);

// The same with the kernel's own type.
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <class... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <class... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*kernel)(Parameters...), int threads,
                                                          std::size_t dynamic_shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, reinterpret_cast<const void*>(kernel), threads,
                                                       dynamic_shared_bytes);
}

// NOLINTEND(readability-identifier-naming)

namespace emulator {

/// How many clusters of so many blocks the device would hold at once if each block took a multiprocessor: as many as an
/// H200 of as many multiprocessors. What cudaOccupancyMaxActiveClusters() is asked for on a GPU.
int clusters_at_a_time(int blocks);

}  // namespace emulator
