#include "emulator/runtime_device.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>

#include "device_model.hpp"
#include "devices.hpp"
#include "emulator/runtime_memory.hpp"
#include "error.hpp"
#include "race_streams.hpp"
#include "stream.hpp"

namespace emulator {
namespace {

constexpr int kCudaVersion = 13000;

std::mutex runtime_mutex;
// By device and kernel, where cudaFuncSetAttribute() has set it.
std::map<std::pair<int, const void*>, std::size_t> dynamic_shared_limits;

cudaError_t attribute(int* value, cudaDeviceAttr attribute) {
  const DeviceModel model = DeviceModel::current();
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
    case cudaDevAttrClockRate:
      *value = model.clock_khz;
      break;
    case cudaDevAttrMemoryClockRate:
      *value = model.memory_clock_khz;
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = model.memory_bus_bits;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = model.multiprocessors;
      break;
    case cudaDevAttrL2CacheSize:
      *value = model.l2_bytes;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = static_cast<int>(model.threads_per_multiprocessor);
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = model.capability / 10;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = model.capability % 10;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(model.shared_per_multiprocessor);
      break;
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      *value = kRegisters;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(model.shared_per_block);
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = static_cast<int>(model.blocks_per_multiprocessor);
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
  const DeviceModel model = DeviceModel::current();
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulator%s%s", model.is_default() ? "" : " as ",
                model.is_default() ? "" : model.card);
  std::size_t available = 0;
  if (const cudaError_t error = cudaMemGetInfo(&available, &properties->totalGlobalMem); error != cudaSuccess) {
    return error;
  }
  properties->sharedMemPerBlock = kSharedPerBlock;
  properties->sharedMemPerBlockOptin = model.shared_per_block;
  properties->sharedMemPerMultiprocessor = model.shared_per_multiprocessor;
  properties->reservedSharedMemPerBlock = kSharedReserved;
  properties->regsPerBlock = kRegisters;
  properties->regsPerMultiprocessor = kRegisters;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = kThreadsPerBlock;
  for (int i = 0; i < 3; ++i) {
    properties->maxThreadsDim[i] = static_cast<int>(kBlockSize[i]);
    properties->maxGridSize[i] = static_cast<int>(kGridSize[i]);
  }
  properties->maxThreadsPerMultiProcessor = static_cast<int>(model.threads_per_multiprocessor);
  properties->maxBlocksPerMultiProcessor = static_cast<int>(model.blocks_per_multiprocessor);
  properties->multiProcessorCount = model.multiprocessors;
  properties->l2CacheSize = model.l2_bytes;
  properties->major = model.capability / 10;
  properties->minor = model.capability % 10;
  return cudaSuccess;
}

}  // namespace

int clusters_at_a_time(int blocks) {
  const int count = DeviceModel::current().multiprocessors;
  // The blocks of a cluster are neighbours: clusters of three can use 117 of the 132 multiprocessors.
  return std::max(1, blocks == 3 ? count * 3 / 10 : count / blocks);
}

std::size_t dynamic_shared_limit(const void* kernel) {
  const std::lock_guard lock(runtime_mutex);
  const auto found = dynamic_shared_limits.find({current_device(), kernel});
  return found == dynamic_shared_limits.end() ? kSharedPerBlock : found->second;
}

}  // namespace emulator

using emulator::result;

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!properties) return result(cudaErrorInvalidValue);
  return emulator::checked_result(
      [&] { return emulator::is_device(device) ? emulator::properties(properties) : cudaErrorInvalidDevice; });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!value) return result(cudaErrorInvalidValue);
  return emulator::checked_result(
      [&] { return emulator::is_device(device) ? emulator::attribute(value, attribute) : cudaErrorInvalidDevice; });
}

cudaError_t cudaDeviceSynchronize() {
  const cudaError_t error = emulator::forbid_during_capture(true);
  if (error == cudaSuccess) emulator::races::Streams::instance().wait_on_host_for_device(emulator::current_device());
  return result(error);
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (!version) return result(cudaErrorInvalidValue);
  *version = emulator::kCudaVersion;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  return cudaRuntimeGetVersion(version);
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;  // a hint, of no use here
  if (!kernel || attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0) {
    return result(cudaErrorInvalidValue);
  }
  return emulator::checked_result([&] {
    const auto bytes = static_cast<std::size_t>(value);
    if (!emulator::DeviceModel::current().has_shared_memory(bytes)) return cudaErrorInvalidValue;
    const std::lock_guard lock(emulator::runtime_mutex);
    emulator::dynamic_shared_limits[{emulator::current_device(), kernel}] = bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  if (!attributes || !kernel) return result(cudaErrorInvalidValue);
  *attributes = {.sharedSizeBytes = 0,
                 .maxThreadsPerBlock = emulator::kThreadsPerBlock,
                 .numRegs = 0,
                 .maxDynamicSharedSizeBytes = static_cast<int>(emulator::dynamic_shared_limit(kernel))};
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                          std::size_t dynamic_shared_bytes) {
  if (!blocks || !kernel || threads <= 0) return result(cudaErrorInvalidValue);
  return emulator::checked_result([&] {
    const emulator::DeviceModel model = emulator::DeviceModel::current();
    const auto rounded_threads = (static_cast<unsigned>(threads) + 31) / 32 * 32;  // a warp is never split
    const std::size_t by_threads = model.threads_per_multiprocessor / rounded_threads;
    const std::size_t by_shared = model.shared_per_multiprocessor / (dynamic_shared_bytes + emulator::kSharedReserved);
    const std::size_t most = model.blocks_per_multiprocessor;
    *blocks =
        rounded_threads > emulator::kThreadsPerBlock ? 0 : static_cast<int>(std::min({by_threads, by_shared, most}));
    return cudaSuccess;
  });
}
