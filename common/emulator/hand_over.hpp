#pragma once
/// @file
/// A point at which threads hand over what they have done, one after the other.

#include <memory>
#include <source_location>

#include "race_detector.hpp"
#include "sanitizer.hpp"

namespace emulator {

/// A SyncPoint that the detector of races knows, too.
class HandOver {
 public:
  /// What the thread that runs did before comes before what others do after an acquire() that comes later.
  void release(std::source_location where) {
    point_.release();
    if (races::Detector* detector = races::active()) detector->release(clock(), where);
  }
  void acquire(std::source_location where) {
    point_.acquire();
    if (races::Detector* detector = races::active(); detector) detector->acquire(clock(), where);
  }
  races::VectorClock& clock() {
    if (!clock_) clock_ = std::make_unique<races::VectorClock>();
    return *clock_;
  }

 private:
  sanitizer::SyncPoint point_;
  std::unique_ptr<races::VectorClock> clock_;  ///< made when it is first needed
};

}  // namespace emulator
