#include "common/parts.hpp"

#include <utility>

namespace tutorial {
namespace {

thread_local PartListener* listener_of_this_thread = nullptr;

}  // namespace

void end_part(const char* name) {
  if (listener_of_this_thread != nullptr) listener_of_this_thread->ended_(name);
}

PartListener::PartListener(std::function<void(const char*)> ended)
    : ended_(std::move(ended)), previous_(std::exchange(listener_of_this_thread, this)) {}

PartListener::~PartListener() {
  listener_of_this_thread = previous_;
}

}  // namespace tutorial
