#include "emulator/fences.hpp"

#include "race_detector.hpp"
#include "race_places.hpp"
#include "sanitizer.hpp"

namespace emulator {

void fence(std::source_location where) {
  static sanitizer::SyncPoint meeting_point;
  meeting_point.release();
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  meeting_point.acquire();
  if (races::Detector* detector = races::active()) detector->fence(races::place_of(where));
}

}  // namespace emulator
