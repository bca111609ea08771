#include <emulator/trace.hpp>

#include "common/device/trace.hpp"

namespace tutorial::trace {

namespace {
unsigned traced_blocks = 0;
}

void begin(unsigned blocks) {
  traced_blocks = blocks;
  emulator::begin_trace(blocks);
}

void restart() {
  begin(traced_blocks);
}

Trace end() {
  return emulator::end_trace();
}

}  // namespace tutorial::trace
