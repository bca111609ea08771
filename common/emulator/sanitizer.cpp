#include "sanitizer.hpp"

#ifdef EMULATOR_TSAN
#include <deque>
#include <mutex>

namespace emulator::sanitizer {
namespace {

// A strand takes 0.9 MB and half a millisecond to make, so the next launch uses those of the last one again. Within a
// launch none is used twice, or ThreadSanitizer would take one block to come after the other.
constexpr std::size_t kKept = 512;

std::mutex strands_mutex;
std::deque<void*> idle;
std::deque<void*> used;  // in this launch

}  // namespace

void Strand::create(const char* name) {
  const std::lock_guard lock(strands_mutex);
  if (idle.empty()) {
    handle_ = __tsan_create_fiber(0);
  } else {
    handle_ = idle.back();
    idle.pop_back();
  }
  __tsan_set_fiber_name(handle_, name);
}

void Strand::discard(bool ended) {
  if (!ended) return __tsan_destroy_fiber(handle_);  // it believes to be in the middle of its functions
  const std::lock_guard lock(strands_mutex);
  used.push_back(handle_);
  if (used.size() <= kKept) return;
  // Not the last ones: of a strand that is gone a report of a race cannot tell where it was.
  __tsan_destroy_fiber(used.front());
  used.pop_front();
}

void recycle_strands() {
  const std::lock_guard lock(strands_mutex);
  for (void* strand : used) {
    if (idle.size() < kKept) {
      idle.push_back(strand);
    } else {
      __tsan_destroy_fiber(strand);
    }
  }
  used.clear();
}

}  // namespace emulator::sanitizer
#endif
