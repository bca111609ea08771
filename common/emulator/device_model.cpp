#include "device_model.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "environment.hpp"
#include "report.hpp"

namespace emulator {
namespace {

constexpr std::size_t kKilobyte = 1024;
constexpr int kMegabyte = 1024 * 1024;

// Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (shared memory, threads and
// blocks per multiprocessor); NVIDIA's data sheets and architecture white papers of the A100, GA10x, Ada, Hopper and
// Blackwell (multiprocessors, second-level cache, clocks, and the memory's bus and bytes per second, which its clock is
// calculated from), but for the H100 and H200: their caches and clocks are what the runtime tells.
constexpr std::array kModels{
    DeviceModel{"a100", "A100", 80, 108, 163 * kKilobyte, 164 * kKilobyte, 2048, 32, 40 * kMegabyte, 1410000, 1215000,
                5120},
    DeviceModel{"rtx3060", "GeForce RTX 3060", 86, 28, 99 * kKilobyte, 100 * kKilobyte, 1536, 16, 3 * kMegabyte,
                1777000, 7501000, 192},
    DeviceModel{"rtx4090", "GeForce RTX 4090", 89, 128, 99 * kKilobyte, 100 * kKilobyte, 1536, 24, 72 * kMegabyte,
                2520000, 10501000, 384},
    DeviceModel{"h100", "H100", 90, 132, 227 * kKilobyte, 228 * kKilobyte, 2048, 32, 50 * kMegabyte, 1980000, 2619000,
                5120},
    DeviceModel{"h200", "H200", 90, 132, 227 * kKilobyte, 228 * kKilobyte, 2048, 32, 60 * kMegabyte, 1980000, 3201000,
                6144},
    DeviceModel{"b200", "B200", 100, 148, 227 * kKilobyte, 228 * kKilobyte, 2048, 32, 126 * kMegabyte, 1965000, 3906000,
                8192},
    DeviceModel{"rtx5090", "GeForce RTX 5090", 120, 170, 99 * kKilobyte, 100 * kKilobyte, 1536, 24, 96 * kMegabyte,
                2407000, 14001000, 512},
};
constexpr const DeviceModel& kDefault = kModels[4];

[[noreturn]] void refuse_setting(const std::string& setting, const std::string& expected) {
  throw std::invalid_argument("EMULATOR_DEVICE has '" + setting + "': " + expected);
}

/// The whole number from 1 to `most` that `text` is.
std::uint64_t number(const std::string& setting, std::string_view text, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value == 0 || value > most) {
    refuse_setting(setting, "a whole number from 1 to " + std::to_string(most) + " expected");
  }
  return value;
}

/// 89 of "8.9".
int capability(const std::string& setting, std::string_view text) {
  const std::size_t point = text.find('.');
  if (point == text.npos || point + 2 != text.size() || text[point + 1] < '0' || text[point + 1] > '9') {
    refuse_setting(setting, "a compute capability such as 8.9 expected");
  }
  return static_cast<int>(number(setting, text.substr(0, point), 99)) * 10 + (text[point + 1] - '0');
}

void set(DeviceModel& model, const std::string& setting) {
  const std::size_t equals = setting.find('=');
  const std::string_view property = std::string_view(setting).substr(0, equals);
  const std::string_view value = std::string_view(setting).substr(equals + 1);
  if (property == "compute_capability") {
    model.capability = capability(setting, value);
  } else if (property == "multiprocessors") {
    model.multiprocessors = static_cast<int>(number(setting, value, kMostMultiprocessors));
  } else if (property == "shared_per_block_kb") {
    model.shared_per_block = number(setting, value, 1024) * kKilobyte;
  } else if (property == "shared_per_multiprocessor_kb") {
    model.shared_per_multiprocessor = number(setting, value, 1024) * kKilobyte;
  } else if (property == "l2_mb") {
    model.l2_bytes = static_cast<int>(number(setting, value, 1024)) * kMegabyte;
  } else {
    refuse_setting(setting,
                   "the properties are compute_capability, multiprocessors, shared_per_block_kb, "
                   "shared_per_multiprocessor_kb and l2_mb");
  }
}

DeviceModel named(const std::string& name) {
  const auto found = std::ranges::find_if(kModels, [&](const DeviceModel& model) { return name == model.name; });
  if (found != kModels.end()) return *found;
  std::string names;
  for (const DeviceModel& model : kModels) names += (names.empty() ? "" : ", ") + std::string(model.name);
  refuse_setting(name, "neither PROPERTY=VALUE nor one of " + names);
}

}  // namespace

std::span<const DeviceModel> DeviceModel::all() {
  return kModels;
}

bool DeviceModel::has_shared_memory(std::size_t bytes) const {
  if (bytes <= shared_per_block) return true;
  report("a block of this launch asks for " + std::to_string(bytes) +
         " bytes of dynamic shared memory, and the device of " + "EMULATOR_DEVICE has " +
         std::to_string(shared_per_block) + " for one\n");
  return false;
}

bool DeviceModel::is_default() const {
  return card == kDefault.card;
}

std::string DeviceModel::capability_text() const {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

DeviceModel DeviceModel::current() {
  DeviceModel model = kDefault;
  if (const char* variable = std::getenv("EMULATOR_DEVICE")) {
    const std::string text = variable;
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      const std::string setting = text.substr(begin, end - begin);
      if (setting.find('=') == setting.npos) {
        if (begin > 0) refuse_setting(setting, "the name of a card stands first");
        model = named(setting);
      } else {
        set(model, setting);
      }
      begin = end + 1;
    }
  }
  if (const auto count = multiprocessors_from_environment()) model.multiprocessors = *count;
  // The system takes its part of each block's shared memory, so a block can never have all of a multiprocessor's.
  if (model.shared_per_block < kSharedPerBlock ||
      model.shared_per_block + kSharedReserved > model.shared_per_multiprocessor) {
    throw std::invalid_argument(
        "EMULATOR_DEVICE: a block's shared memory is at least 48 KB, and at least 1 KB less than a multiprocessor's");
  }
  return model;
}

}  // namespace emulator
