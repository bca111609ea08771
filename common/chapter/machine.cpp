#include "common/chapter/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <stdexcept>

#include <cuda_runtime.h>

#include "common/device/device.hpp"
#include "common/device/error.hpp"
#include "common/error.hpp"
#include "common/parallel.hpp"

#if TUTORIAL_EMULATOR
#include <emulator/check_environment.hpp>
#include <emulator/counters.hpp>
#endif

namespace tutorial {
namespace {

// The value of the first line "NAME : value" of a file in /proc; empty where there is none.
std::string proc_value(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const std::size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
    return value == line.npos ? "" : line.substr(value);
  }
  return {};
}

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

// A number that is alone in a file; `missing` where there is none ("max" in a control group without a limit).
std::size_t number_in(const std::filesystem::path& path, std::size_t missing) {
  std::size_t number = 0;
  return std::ifstream(path) >> number ? number : missing;
}

// Settings of the emulator that make no sense are found before a stage meets them.
void check_settings() {
#if TUTORIAL_EMULATOR
  try {
    emulator::check_environment();
  } catch (const std::invalid_argument& problem) {
    throw UsageError(problem.what());
  }
#endif
}

cudaDeviceProp gpu_properties() {
  check_settings();
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    throw UsageError(fmt::format("no usable GPU was found ({}); --cpu-only runs the stages that need none",
                                 status == cudaSuccess ? "no device" : cudaGetErrorString(status)));
  }
  int device = 0;
  check(cudaGetDevice(&device));
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device));
  if (properties.major < 8) {
    throw UsageError(fmt::format(
        "{} has compute capability {}.{}; the kernels need 8.0 or later. --cpu-only runs the stages that need no GPU",
        properties.name, properties.major, properties.minor));
  }
  return properties;
}

}  // namespace

Machine probe_machine(bool needs_gpu, std::optional<int> as) {
  Machine machine;
  machine.cpu = proc_value("/proc/cpuinfo", "model name");
  if (machine.cpu.empty()) machine.cpu = "CPU";
  machine.threads = processor_count();
  if (needs_gpu) {
    machine.has_gpu = true;
    const cudaDeviceProp gpu = gpu_properties();
    machine.gpu = gpu.name;
    machine.multiprocessors = gpu.multiProcessorCount;
    machine.capability = 10 * gpu.major + gpu.minor;
    if (as) {
      if (const std::string reason = pass_for(*as); !reason.empty()) throw UsageError("--as: " + reason);
      machine.passes_for = *as;
    }
  }
  return machine;
}

std::size_t available_host_memory() {
  const std::string kilobytes = proc_value("/proc/meminfo", "MemAvailable");
  const std::size_t system = kilobytes.empty() ? kUnlimited : std::stoull(kilobytes) * 1024;
  return std::min(system, available_in_container());
}

std::size_t available_in_container(const std::filesystem::path& cgroup) {
  std::size_t available = kUnlimited;
  for (const auto& [limit_file, used_file] :
       {std::pair("memory.max", "memory.current"), {"memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"}}) {
    const std::size_t limit = number_in(cgroup / limit_file, kUnlimited);
    const std::size_t used = number_in(cgroup / used_file, 0);
    if (limit != kUnlimited) available = std::min(available, limit - std::min(limit, used));
  }
  return available;
}

std::size_t available_gpu_memory() {
  std::size_t available = 0, total = 0;
  check(cudaMemGetInfo(&available, &total));
  return available;
}

void reset_kernel_counts() {
#if TUTORIAL_EMULATOR
  emulator::reset_counters();
#endif
}

KernelCounts kernel_counts() {
#if TUTORIAL_EMULATOR
  const emulator::Counters counters = emulator::counters();
  return {static_cast<double>(counters.launches),
          static_cast<double>(counters.blocks),
          static_cast<double>(counters.threads),
          static_cast<double>(counters.barriers),
          static_cast<double>(counters.atomics),
          static_cast<double>(counters.global_bytes_read),
          static_cast<double>(counters.global_bytes_written)};
#else
  return {};
#endif
}

}  // namespace tutorial
