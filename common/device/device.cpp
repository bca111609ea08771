#include "common/device/device.hpp"

#include <cuda_runtime.h>

#include "common/device/error.hpp"

namespace tutorial {

int multiprocessor_count() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

}  // namespace tutorial
