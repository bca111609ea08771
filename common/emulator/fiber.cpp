#include "fiber.hpp"

namespace emulator {

using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

namespace {

/// What a jump hands over. It lies on the stack of the fiber that jumps.
struct Jump {
  Fiber& from;
  Fiber& to;
};

}  // namespace

void Fiber::prepare(char* stack_top, sanitizer::StackBounds bounds, void (*function)(void*), void* argument,
                    const char* name) {
  const auto* bottom = static_cast<const char*>(bounds.bottom);
  context_ = make_fcontext(stack_top, static_cast<std::size_t>(stack_top - bottom), &Fiber::enter);
  bounds_ = bounds;
  fake_stack_ = nullptr;
  function_ = function;
  argument_ = argument;
  strand_.create(name);
}

void Fiber::discard(bool ended, sanitizer::SyncPoint& end) {
  strand_.release(end);
  strand_.discard(ended);
  if (!ended) sanitizer::forget_frames(bounds_);
}

void Fiber::jump(Fiber& next, void** fake_stack) {
  next.strand_.switch_to();
  sanitizer::start_switch(fake_stack, next.bounds_);
  Jump there{*this, next};
  const transfer_t back = jump_fcontext(next.context_, &there);
  Fiber& from = static_cast<Jump*>(back.data)->from;
  from.context_ = back.fctx;
  from.bounds_ = sanitizer::finish_switch(fake_stack_);
}

void Fiber::enter(transfer_t transfer) {
  auto& [from, self] = *static_cast<Jump*>(transfer.data);
  from.context_ = transfer.fctx;
  from.bounds_ = sanitizer::finish_switch(nullptr);
  self.function_(self.argument_);
}

void Fiber::leave_to(Fiber& next) {
  jump(next, nullptr);
  __builtin_unreachable();
}

}  // namespace emulator
