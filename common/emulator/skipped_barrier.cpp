#include "skipped_barrier.hpp"

#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "emulator/barrier.hpp"

namespace emulator {
namespace {

std::mutex skipped_mutex;
std::optional<SkippedBarrier> skipped;
std::atomic<bool> met = false;

/// Says at the end of the program if no barrier was left out where the user asked for one: else a run that passes would seem
/// to say that the barrier is not needed.
struct Reminder {
  ~Reminder() {
    const char* text = std::getenv("EMULATOR_SKIP_BARRIER");
    if (text == nullptr || met) return;
    std::fprintf(stderr,
                 "emulator: EMULATOR_SKIP_BARRIER=%s: no kernel came to a barrier, wait or fence at that line\n", text);
  }
};

}  // namespace

SkippedBarrier SkippedBarrier::parse(const std::string& text) {
  SkippedBarrier barrier;
  std::string place = text;
  constexpr std::pair<const char*, Fault> kFaults[] = {
      {":relaxed", Fault::relaxed}, {":early", Fault::early}, {":late", Fault::late}, {":weaker", Fault::weaker}};
  for (const auto& [ending, fault] : kFaults) {
    if (!place.ends_with(ending)) continue;
    barrier.fault = fault;
    place.resize(place.size() - std::string_view(ending).size());
  }
  const std::size_t colon = place.rfind(':');
  if (colon != std::string::npos && colon > 0) {
    barrier.file = place.substr(0, colon);
    const char* last = place.data() + place.size();
    const auto [end, error] = std::from_chars(place.data() + colon + 1, last, barrier.line);
    if (error == std::errc() && end == last) return barrier;
  }
  throw std::invalid_argument("EMULATOR_SKIP_BARRIER is '" + text +
                              "': FILE:LINE expected, or FILE:LINE:relaxed, early, late or weaker");
}

std::optional<SkippedBarrier> SkippedBarrier::current() {
  const std::lock_guard lock(skipped_mutex);
  if (skipped) return skipped;
  const char* text = std::getenv("EMULATOR_SKIP_BARRIER");
  if (!text) return std::nullopt;
  SkippedBarrier barrier = parse(text);
  static const Reminder reminder;
  return barrier;
}

bool SkippedBarrier::is_at(const std::source_location& where) const {
  const bool is = where.line() == line && std::string_view(where.file_name()).ends_with(file);
  if (is) met = true;
  return is;
}

void skip_barrier(const std::string& file, unsigned line) {
  const std::lock_guard lock(skipped_mutex);
  skipped = SkippedBarrier{.file = file, .line = line};
}

void skip_no_barrier() {
  const std::lock_guard lock(skipped_mutex);
  skipped.reset();
}

}  // namespace emulator
