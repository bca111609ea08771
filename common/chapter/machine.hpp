#pragma once
/// @file
/// What this build runs on: the processor, the GPU or its emulator, and how much memory they have.

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

namespace tutorial {

#if TUTORIAL_EMULATOR
inline constexpr bool kEmulated = true;
#else
inline constexpr bool kEmulated = false;
#endif

/// What the program runs on.
struct Machine {
  std::string cpu;       ///< name of the processor
  int threads = 1;       ///< that it runs at once
  bool has_gpu = false;  ///< GPU stages can run: on a GPU, or in an emulator build on the emulator
  std::string gpu;       ///< name of the GPU; of the emulator in an emulator build
  int capability = 0;    ///< its compute capability, 90 for 9.0
  int passes_for = 0;    ///< the one that the kernels see in its place; 0 if it is the GPU's own
  int multiprocessors = 0;
};

/// Looks at the machine, and lets its GPU pass for a card of compute capability `as` if one is given (pass_for() of
/// common/device/device.hpp). Throws UsageError where a GPU is needed and there is none, or one of a compute capability
/// below 8.0, or one that cannot pass for that card.
Machine probe_machine(bool needs_gpu, std::optional<int> as = {});

/// Bytes of memory that a program can still take without being killed, from the system and, in a container, its limit.
/// The largest number there is where neither is known.
std::size_t available_host_memory();
/// What a container's limit leaves, by the files below `cgroup`: those of control groups of version 2, or else 1. The
/// largest number there is where there is no limit.
std::size_t available_in_container(const std::filesystem::path& cgroup = "/sys/fs/cgroup");
/// Free bytes on the GPU; on the emulator as it counts them. Throws CudaError where there is no GPU.
std::size_t available_gpu_memory();

/// What the kernels of a stage did, counted by the emulator.
struct KernelCounts {
  double launches = 0;
  double blocks = 0;
  double threads = 0;
  double barriers = 0;    ///< __syncthreads() of a block
  double atomics = 0;     ///< one per thread
  double bytes_read = 0;  ///< of device memory, as is the next
  double bytes_written = 0;
};

/// Sets the counts to zero. Does nothing on a GPU.
void reset_kernel_counts();
/// The counts since then, of launches that have ended; zeros on a GPU.
KernelCounts kernel_counts();

}  // namespace tutorial
