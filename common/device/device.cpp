#include "common/device/device.hpp"

#include <cuda_runtime.h>

#include "common/device/error.hpp"

namespace tutorial {
namespace {

int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

}  // namespace

int multiprocessor_count() {
  return attribute(cudaDevAttrMultiProcessorCount);
}

int compute_capability() {
  return 10 * attribute(cudaDevAttrComputeCapabilityMajor) + attribute(cudaDevAttrComputeCapabilityMinor);
}

int shared_memory_per_block() {
  return attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
}

}  // namespace tutorial
