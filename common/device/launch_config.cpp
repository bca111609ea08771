#include "common/device/launch_config.hpp"

#include <ostream>
#include <sstream>

#include "common/device/error.hpp"

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

void check_launch(cudaError_t status, const LaunchConfig& config) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // reported here, so that the next check does not report it again
  std::ostringstream text;
  text << "launch of " << config.grid << " blocks";
  if (has_clusters(config)) text << " in clusters of " << config.cluster;
  text << " of " << config.block << " threads with " << config.shared_bytes << " bytes of dynamic shared memory failed";
  throw CudaError(status, text.str(), config.where);
}

std::int64_t launch_count() {
  return launches;
}

void count_launch() {
  ++launches;
}

}  // namespace tutorial
