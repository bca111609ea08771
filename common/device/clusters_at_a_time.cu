#include <cuda_runtime.h>

#include <map>
#include <mutex>
#include <utility>

#include "common/device/device.hpp"
#include "common/device/error.hpp"

#if TUTORIAL_EMULATOR
#include <emulator/runtime_device.hpp>
#endif

namespace tutorial {

#if TUTORIAL_EMULATOR

int clusters_at_a_time(int blocks) {
  return bulk_copies_missing().empty() ? emulator::clusters_at_a_time(blocks) : 0;
}

#else

namespace {

__global__ void takes_a_multiprocessor() {}

/// What the runtime says of a kernel whose blocks take all shared memory of a multiprocessor.
int ask(int blocks) {
  const int bytes = shared_memory_per_block();
  check(cudaFuncSetAttribute(takes_a_multiprocessor, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {unsigned(blocks), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(unsigned(blocks * multiprocessor_count()));
  config.blockDim = dim3(128);
  config.dynamicSmemBytes = std::size_t(bytes);
  config.attrs = &cluster;
  config.numAttrs = 1;
  int count = 0;
  check(cudaOccupancyMaxActiveClusters(&count, takes_a_multiprocessor, &config));
  return count;
}

}  // namespace

int clusters_at_a_time(int blocks) {
  static std::mutex mutex;
  static std::map<std::pair<int, int>, int> known;  // by device and blocks: dispatch asks at each call
  if (!bulk_copies_missing().empty()) return 0;
  int device = 0;
  check(cudaGetDevice(&device));
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = known.try_emplace({device, blocks}, 0);
  if (is_new) found->second = ask(blocks);
  return found->second;
}

#endif

}  // namespace tutorial
