#include "environment.hpp"

#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "async_order.hpp"
#include "device_model.hpp"
#include "emulator/check_environment.hpp"
#include "nccl_fault.hpp"
#include "schedule.hpp"
#include "skipped_barrier.hpp"

namespace emulator {
namespace {

// More than any machine has, and few enough that what programs compute with them fits their types.
constexpr std::uint64_t kMostThreads = 1024;
constexpr std::uint64_t kMostDevices = 64;
constexpr std::uint64_t kMostMemory = std::uint64_t{1} << 62;

}  // namespace

std::optional<std::uint64_t> number_from_environment(const char* name, std::uint64_t most) {
  const char* variable = std::getenv(name);
  if (!variable) return std::nullopt;
  const std::string text = variable;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number == 0 || number > most) {
    throw std::invalid_argument(std::string(name) + " is '" + text + "': a whole number from 1 to " +
                                std::to_string(most) + " expected");
  }
  return number;
}

std::optional<unsigned> threads_from_environment() {
  return number_from_environment("EMULATOR_THREADS", kMostThreads);
}

std::optional<int> multiprocessors_from_environment() {
  return number_from_environment("EMULATOR_MULTIPROCESSORS", kMostMultiprocessors);
}

std::optional<int> devices_from_environment() {
  return number_from_environment("EMULATOR_DEVICES", kMostDevices);
}

std::optional<std::size_t> memory_from_environment() {
  return number_from_environment("EMULATOR_MEMORY", kMostMemory);
}

std::uint64_t trace_blocks_from_environment() {
  return number_from_environment("EMULATOR_TRACE_BLOCKS", std::uint64_t{1} << 20).value_or(8);
}

void check_environment() {
  threads_from_environment();
  DeviceModel::current();
  devices_from_environment();
  memory_from_environment();
  if (const char* text = std::getenv("EMULATOR_SCHEDULE")) Schedule::parse(text);
  AsyncOrder::current();
  SkippedBarrier::current();
  NcclFault::from_environment();
  trace_blocks_from_environment();
}

}  // namespace emulator
