#include "device.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>

#include "devices.hpp"
#include "emulator/runtime_device.hpp"
#include "emulator/runtime_memory.hpp"
#include "environment.hpp"
#include "error.hpp"
#include "stream.hpp"

namespace emulator::device {
namespace {

constexpr int kCudaVersion = 13000;

std::mutex mutex;
std::map<const void*, std::size_t> dynamic_shared_limits;  // by kernel, where cudaFuncSetAttribute() has set it

int multiprocessors() {
  return multiprocessors_from_environment().value_or(kMultiprocessors);
}

cudaError_t attribute(int* value, cudaDeviceAttr attribute) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = kThreadsPerBlock;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = kSharedPerBlock;
      break;
    case cudaDevAttrWarpSize:
      *value = 32;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
      *value = kRegisters;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = multiprocessors();
      break;
    case cudaDevAttrL2CacheSize:
      *value = kL2Bytes;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = kThreadsPerMultiprocessor;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = kMajor;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = kMinor;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = kSharedPerMultiprocessor;
      break;
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      *value = kRegisters;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = kSharedPerBlockOptin;
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = kBlocksPerMultiprocessor;
      break;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      *value = kSharedReserved;
      break;
    default:
      return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

cudaError_t properties(cudaDeviceProp* properties) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulator");
  std::size_t available = 0;
  if (const cudaError_t error = cudaMemGetInfo(&available, &properties->totalGlobalMem); error != cudaSuccess) {
    return error;
  }
  properties->sharedMemPerBlock = kSharedPerBlock;
  properties->sharedMemPerBlockOptin = kSharedPerBlockOptin;
  properties->sharedMemPerMultiprocessor = kSharedPerMultiprocessor;
  properties->reservedSharedMemPerBlock = kSharedReserved;
  properties->regsPerBlock = kRegisters;
  properties->regsPerMultiprocessor = kRegisters;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = kThreadsPerBlock;
  for (int i = 0; i < 3; ++i) {
    properties->maxThreadsDim[i] = static_cast<int>(kBlockSize[i]);
    properties->maxGridSize[i] = static_cast<int>(kGridSize[i]);
  }
  properties->maxThreadsPerMultiProcessor = kThreadsPerMultiprocessor;
  properties->maxBlocksPerMultiProcessor = kBlocksPerMultiprocessor;
  properties->multiProcessorCount = multiprocessors();
  properties->l2CacheSize = kL2Bytes;
  properties->major = kMajor;
  properties->minor = kMinor;
  return cudaSuccess;
}

}  // namespace

std::size_t dynamic_shared_limit(const void* kernel) {
  const std::lock_guard lock(mutex);
  const auto found = dynamic_shared_limits.find(kernel);
  return found == dynamic_shared_limits.end() ? kSharedPerBlock : found->second;
}

}  // namespace emulator::device

using emulator::result;
namespace device = emulator::device;

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!properties) return result(cudaErrorInvalidValue);
  return emulator::checked_result(
      [&] { return emulator::is_device(device) ? device::properties(properties) : cudaErrorInvalidDevice; });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!value) return result(cudaErrorInvalidValue);
  return emulator::checked_result(
      [&] { return emulator::is_device(device) ? device::attribute(value, attribute) : cudaErrorInvalidDevice; });
}

cudaError_t cudaDeviceSynchronize() {
  return result(emulator::forbid_during_capture(true));
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (!version) return result(cudaErrorInvalidValue);
  *version = device::kCudaVersion;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  return cudaRuntimeGetVersion(version);
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;  // a hint, of no use here
  if (!kernel || attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<std::size_t>(value) > device::kSharedPerBlockOptin) {
    return result(cudaErrorInvalidValue);
  }
  const std::lock_guard lock(device::mutex);
  device::dynamic_shared_limits[kernel] = static_cast<std::size_t>(value);
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  if (!attributes || !kernel) return result(cudaErrorInvalidValue);
  *attributes = {.sharedSizeBytes = 0,
                 .maxThreadsPerBlock = device::kThreadsPerBlock,
                 .numRegs = 0,
                 .maxDynamicSharedSizeBytes = static_cast<int>(device::dynamic_shared_limit(kernel))};
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                          std::size_t dynamic_shared_bytes) {
  if (!blocks || !kernel || threads <= 0) return result(cudaErrorInvalidValue);
  const auto rounded_threads = (static_cast<unsigned>(threads) + 31) / 32 * 32;  // a warp is never split
  const std::size_t by_threads = device::kThreadsPerMultiprocessor / rounded_threads;
  const std::size_t by_shared = device::kSharedPerMultiprocessor / (dynamic_shared_bytes + device::kSharedReserved);
  *blocks = rounded_threads > device::kThreadsPerBlock
                ? 0
                : static_cast<int>(std::min({by_threads, by_shared, std::size_t{device::kBlocksPerMultiprocessor}}));
  return cudaSuccess;
}
