#include "emulator/early_start.hpp"

#include "block.hpp"

namespace emulator {

void let_next_kernel_start(std::source_location where) {
  if (races::Detector* detector = races::active()) detector->let_next_launch_start();
  if (Recorder* recorder = Recorder::active()) recorder->let_next_start(Block::current()->thread(), where);
}

void wait_for_previous_kernel(std::source_location where) {
  if (races::Detector* detector = races::active()) detector->wait_for_previous_launch();
  if (Recorder* recorder = Recorder::active()) recorder->wait_for_previous(Block::current()->thread(), where);
}

}  // namespace emulator
