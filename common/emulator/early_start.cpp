#include "emulator/early_start.hpp"

#include "race_detector.hpp"

namespace emulator {

void let_next_kernel_start() {
  if (races::Detector* detector = races::active()) detector->let_next_launch_start();
}

void wait_for_previous_kernel() {
  if (races::Detector* detector = races::active()) detector->wait_for_previous_launch();
}

}  // namespace emulator
