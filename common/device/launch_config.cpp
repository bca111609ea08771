#include "common/device/launch_config.hpp"

#include <algorithm>
#include <ostream>
#include <sstream>

#include "common/device/device.hpp"
#include "common/device/error.hpp"
#if TUTORIAL_TRACE
#include "common/device/trace.hpp"
#endif

namespace tutorial {
namespace {

std::int64_t launches = 0;

std::ostream& operator<<(std::ostream& out, dim3 size) {
  return out << size.x << " x " << size.y << " x " << size.z;
}

}  // namespace

bool has_clusters(const LaunchConfig& config) {
  return config.cluster.x != 1 || config.cluster.y != 1 || config.cluster.z != 1;
}

bool starts_early(const LaunchConfig& config) {
  return config.starts_early && has_early_start();
}

void check_launch(cudaError_t status, const LaunchConfig& config) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // reported here, so that the next check does not report it again
  std::ostringstream text;
  text << "launch of " << config.grid << " blocks";
  if (has_clusters(config)) text << " in clusters of " << config.cluster;
  text << " of " << config.block << " threads with " << config.shared_bytes << " bytes of dynamic shared memory failed";
  throw CudaError(status, text.str(), config.where);
}

std::size_t shared_bytes_to_ask_for([[maybe_unused]] const void* kernel, std::size_t dynamic_bytes) {
#if TUTORIAL_CUDA
  if (passes_for() == 0 || dynamic_bytes == 0) return dynamic_bytes;
  const std::size_t theirs = shared_memory_per_multiprocessor();
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel));
  int device = 0, own = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&own, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device));
  constexpr std::size_t kReserved = 1024;  // by the system, in each block
  constexpr std::size_t kStep = 128;       // in which shared memory is handed out
  const std::size_t beside = attributes.sharedSizeBytes + kReserved;
  const std::size_t blocks = std::max<std::size_t>(theirs / (dynamic_bytes + beside), 1);
  const std::size_t too_many = std::size_t(own) / (blocks + 1) / kStep * kStep;  // of so much, one block more would fit
  return std::max(dynamic_bytes, too_many + kStep - std::min(beside, too_many));
#else
  return dynamic_bytes;
#endif
}

std::int64_t launch_count() {
  return launches;
}

void count_launch([[maybe_unused]] const LaunchConfig& config) {
  ++launches;
#if TUTORIAL_TRACE
  trace::note_launch(config);
#endif
}

}  // namespace tutorial
