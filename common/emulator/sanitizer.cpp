#include "sanitizer.hpp"

#ifdef EMULATOR_TSAN
#include <deque>
#include <mutex>

namespace emulator::sanitizer {
namespace {

constexpr std::size_t kKept = 256;

std::mutex mutex;
std::deque<void*> kept;

}  // namespace

void Strand::destroy() {
  // ThreadSanitizer forgets where a destroyed strand was, and could tell one side of a race only. So the last ones
  // stay.
  const std::lock_guard lock(mutex);
  kept.push_back(handle_);
  if (kept.size() <= kKept) return;
  __tsan_destroy_fiber(kept.front());
  kept.pop_front();
}

}  // namespace emulator::sanitizer
#endif
