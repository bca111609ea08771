#include "emulator/races.hpp"

#include <cstdlib>
#include <deque>
#include <stdexcept>
#include <utility>

#include "cluster.hpp"
#include "race_detector.hpp"
#include "race_hooks.hpp"
#include "race_places.hpp"
#include "report.hpp"

namespace emulator {
namespace races {
namespace {

bool collects = false;
std::deque<NamedMemory>& named() {
  static std::deque<NamedMemory> memory;
  return memory;
}

NamedMemory* find_named(const void* address) {
  const auto* byte = static_cast<const char*>(address);
  for (NamedMemory& one : named()) {
    const auto* begin = static_cast<const char*>(one.address);
    if (byte >= begin && byte < begin + one.bytes) return &one;
  }
  return nullptr;
}

}  // namespace

bool is_collecting() {
  return collects;
}

bool is_wanted() {
#ifdef EMULATOR_RACES_BUILD
  bool is_wanted = true;
#else
  bool is_wanted = collects;
#endif
  if (const char* text = std::getenv("EMULATOR_RACES"); text && !collects) {
    const std::string value = text;
    if (value != "0" && value != "1") throw std::invalid_argument("EMULATOR_RACES is '" + value + "': 0 or 1 expected");
    is_wanted = value == "1";
  }
  if (is_wanted && !is_instrumented()) {
    throw std::invalid_argument(
        "EMULATOR_RACES: this program was built without the calls that tell of accesses; take the preset "
        "emulator-races");
  }
  return is_wanted;
}

cudaError_t note_copy(const void* to, const void* from, std::size_t bytes, const void* return_address) {
  if (!is_wanted()) return cudaSuccess;
  Detector& detector = Detector::instance();
  const std::lock_guard lock(detector.mutex());
  const std::string text = detector.copy(to, from, bytes, return_address ? place_of(return_address) : 0);
  if (text.empty()) return cudaSuccess;
  report(text);
  return cudaErrorLaunchFailure;
}

void count_access(const void* address, std::size_t bytes, bool is_write) {
  if (!collects) return;
  NamedMemory* memory = find_named(address);
  if (memory) (is_write ? memory->bytes_written : memory->bytes_read) += bytes;
}

}  // namespace races

void collect_findings() {
  races::collects = true;
}

std::vector<Finding> take_findings() {
  std::vector<Finding> findings;
  for (const races::Found& found : races::Detector::instance().take()) {
    findings.push_back({found.kind, races::sentence_of(found)});
  }
  return findings;
}

void name_memory(const NamedMemory& memory) {
  races::Detector::instance().forget(memory.address, memory.bytes);
  races::named().push_back(memory);
}

void forget_names() {
  races::named().clear();
}

const NamedMemory* find_named_memory(const void* address) {
  return races::find_named(address);
}

bool was_written(const void* address) {
  return races::Detector::instance().was_written(address);
}

void note_read(const void* address, std::size_t bytes, std::source_location where) {
  if (races::Detector* detector = races::active()) detector->read(address, bytes, races::place_of(where));
}

void note_write(const void* address, std::size_t bytes, std::source_location where) {
  if (races::Detector* detector = races::active()) detector->write(address, bytes, races::place_of(where));
}

void note_unfinished_write(const void* address, std::size_t bytes, std::source_location where) {
  if (races::Detector* detector = races::active()) {
    detector->write(address, bytes, races::place_of(where), races::kUnfinished);
  }
}

void note_proxy_read(const void* address, std::size_t bytes, std::source_location where) {
  if (races::Detector* detector = races::active()) {
    detector->proxy_read(Block::current()->thread(), address, bytes, races::place_of(where));
  }
}

}  // namespace emulator
