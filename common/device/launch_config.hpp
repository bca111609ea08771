#pragma once
/// @file
/// How many threads a launch starts, and what it says when it is refused.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <source_location>

namespace tutorial {

/// What stands between <<< and >>> in plain CUDA, and the line that an error names. Clusters and an early start are set
/// afterwards:
///
///     LaunchConfig config(blocks, threads, bytes);
///     config.cluster = 2;
///     launch(kernel, config, ...);
struct LaunchConfig {
  /// Remembers the line of the launch for error messages.
  LaunchConfig(dim3 grid_size, dim3 block_size, std::size_t dynamic_shared_bytes = 0,
               std::source_location location = std::source_location::current())
      : grid(grid_size), block(block_size), shared_bytes(dynamic_shared_bytes), where(location) {}

  dim3 grid;                   ///< blocks
  dim3 cluster = 1;            ///< blocks of a cluster (cluster.cuh), at most 8; they divide the grid
  dim3 block;                  ///< threads in a block
  bool starts_early = false;   ///< may start before the kernel before has ended (early_start.cuh)
  std::size_t shared_bytes;    ///< bytes of dynamic shared memory of a block; see dynamic_shared()
  std::source_location where;  ///< the line of the launch
};

/// Whether the launch is to have clusters of more than one block.
bool has_clusters(const LaunchConfig& config);

/// Whether the launch is to start early, on a GPU that can.
bool starts_early(const LaunchConfig& config);

/// Throws CudaError if the launch was refused (a block of too many threads, too much shared memory, an empty grid,
/// clusters that do not divide it) or,
/// on the emulator, if the kernel itself went wrong. The message has the sizes of `config` and its line.
void check_launch(cudaError_t status, const LaunchConfig& config);

/// On a GPU: the dynamic shared memory to ask for in place of `dynamic_bytes`, so that no more blocks share a
/// multiprocessor than on the card that pass_for() has named (device.hpp); the same number if it was not called.
std::size_t shared_bytes_to_ask_for(const void* kernel, std::size_t dynamic_bytes);

/// Kernels that launch() has started since the process began, those that a graph has captured among them; what a graph
/// starts again does not count. For the host thread that launches.
std::int64_t launch_count();
/// One more, of which a trace on a GPU takes note (trace.hpp); launch() calls it.
void count_launch(const LaunchConfig& config);

}  // namespace tutorial
