#include "emulator/launch.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "cluster.hpp"
#include "counters.hpp"
#include "device_model.hpp"
#include "devices.hpp"
#include "emulator/kernels_run.hpp"
#include "error.hpp"
#include "report.hpp"
#include "stream.hpp"
#include "workers.hpp"

namespace emulator {
namespace {

// Every stack and the page below it are mappings of their own, of which Linux grants a process 65530. Workers keep
// theirs for later launches, so this allows for several times as many.
constexpr unsigned kMaxStacks = 8192;

/// The error of a launch that a GPU would refuse: for all of them the one that an H200 gave with CUDA 13.0.
cudaError_t validate(dim3 grid, dim3 block, dim3 cluster, std::size_t shared_bytes, const void* kernel,
                     const DeviceModel& model) {
  const unsigned grid_size[] = {grid.x, grid.y, grid.z};
  const unsigned block_size[] = {block.x, block.y, block.z};
  const unsigned cluster_size[] = {cluster.x, cluster.y, cluster.z};
  for (int i = 0; i < 3; ++i) {
    if (grid_size[i] == 0 || grid_size[i] > kGridSize[i]) return cudaErrorInvalidValue;
    if (block_size[i] == 0 || block_size[i] > kBlockSize[i]) return cudaErrorInvalidValue;
  }
  if (std::uint64_t{block.x} * block.y * block.z > kThreadsPerBlock) return cudaErrorInvalidValue;
  if (kernel && shared_bytes > dynamic_shared_limit(kernel)) return cudaErrorInvalidValue;
  if (!model.has_shared_memory(shared_bytes)) return cudaErrorInvalidValue;
  // By the description of the code; no GPU was asked.
  for (int i = 0; i < 3; ++i) {
    if (cluster_size[i] == 0 || grid_size[i] % cluster_size[i] != 0) return cudaErrorInvalidClusterSize;
  }
  const std::uint64_t blocks_per_cluster = std::uint64_t{cluster.x} * cluster.y * cluster.z;
  if (blocks_per_cluster > kBlocksPerCluster) return cudaErrorInvalidClusterSize;
  if (blocks_per_cluster > 1 && !model.has(Feature::bulk_copies)) {
    report("clusters need compute capability 9.0 or later, and the device of EMULATOR_DEVICE has " +
           model.capability_text() + "\n");
    return cudaErrorNotSupported;
  }
  return cudaSuccess;
}

std::atomic<bool> do_kernels_run = true;

/// Runs all blocks. Returns the report of the first that failed, else an empty text.
std::string run_blocks(Launch& launch, unsigned worker_count) {
  std::atomic<std::uint64_t> next = 0;
  std::mutex mutex;
  std::string failure;
  const auto run_cluster = [&](Cluster& cluster, std::uint64_t i) {
    std::string text = cluster.run(launch.schedule.cluster(i, launch.clusters()));
    if (text.empty()) return;
    next = launch.clusters();  // start no more
    const std::lock_guard lock(mutex);
    if (failure.empty()) failure = std::move(text);
  };
  Workers::instance().run(worker_count, [&](Stacks& stacks) {
    if constexpr (sanitizer::kThread) {
      // Stacks, shared memory and points of synchronisation that were another cluster's would look shared or ordered to
      // ThreadSanitizer. Those of a new OS thread are new to it.
      for (std::uint64_t i = next++; i < launch.clusters(); i = next++) {
        std::thread([&] {
          Stacks new_stacks;
          run_cluster(*std::make_unique<Cluster>(launch, new_stacks), i);
        }).join();
      }
    } else {
      Cluster cluster(launch, stacks);
      for (std::uint64_t i = next++; i < launch.clusters(); i = next++) run_cluster(cluster, i);
    }
  });
  launch.end.acquire();
  sanitizer::recycle_strands();
  return failure;
}

cudaError_t run(Launch launch) {
  const unsigned most = std::max(1u, kMaxStacks / (launch.threads_per_block() * launch.blocks_per_cluster()));
  const std::uint64_t workers =
      launch.detector || launch.recorder ? 1 : std::min<std::uint64_t>({worker_limit(), most, launch.clusters()});
  const std::lock_guard one_at_a_time(races::Detector::instance().mutex());
  if (launch.detector) launch.detector->begin_launch(launch.starts_early);
  if (launch.recorder) launch.recorder->begin_launch(launch);
  const std::string failure = run_blocks(launch, static_cast<unsigned>(workers));
  if (launch.recorder) launch.recorder->end_launch(failure);
  add_to_counters({.launches = 1});
  if (failure.empty()) return cudaSuccess;
  report(failure);
  return cudaErrorLaunchFailure;
}

}  // namespace

void set_kernels_run(bool run) {
  do_kernels_run = run;
}

bool kernels_run() {
  return do_kernels_run;
}

cudaError_t launch(dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream, std::source_location where,
                   std::function<void()> body, const void* kernel, dim3 cluster, std::span<const std::byte> arguments,
                   bool starts_early) {
  return checked_result([&] {
    if (device_of(stream) != current_device()) return refuse(stream, cudaErrorInvalidResourceHandle);
    const DeviceModel model = DeviceModel::current();
    if (const cudaError_t error = validate(grid, block, cluster, shared_bytes, kernel, model); error != cudaSuccess) {
      return refuse(stream, error);
    }
    if (const std::string text = find_memory_of_others(arguments); !text.empty()) {
      report(text + "  kernel launched at " + describe(where) + "\n");
      return refuse(stream, cudaErrorLaunchFailure);
    }
    if (!kernels_run()) return cudaSuccess;
    static std::atomic<std::uint32_t> launches = 0;
    return submit(
        stream,
        [grid, block, cluster, shared_bytes, where, model, starts_early, body = std::move(body)] {
          return run({.grid = grid,
                      .block = block,
                      .cluster = cluster,
                      .shared_bytes = shared_bytes,
                      .where = where,
                      .device = model,
                      .body = body,
                      .schedule = Schedule::next(),
                      .skipped_barrier = SkippedBarrier::current(),
                      .async_order = AsyncOrder::current(),
                      .starts_early = starts_early,
                      .end = {},
                      .number = ++launches,
                      .detector = races::is_wanted() ? &races::Detector::instance() : nullptr,
                      .recorder = Recorder::wanted()});
        },
        Work::kernel);
  });
}

}  // namespace emulator
