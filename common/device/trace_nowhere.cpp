// Of a build for a GPU without TUTORIAL_TRACE: there is no option that would call these.

#include <stdexcept>

#include "common/device/trace.hpp"

namespace tutorial::trace {
namespace {

[[noreturn]] void refuse() {
  throw std::logic_error("this build does not trace");
}

}  // namespace

void begin(unsigned) {
  refuse();
}

void restart() {
  refuse();
}

Trace end() {
  refuse();
}

}  // namespace tutorial::trace
