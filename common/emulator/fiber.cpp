#include "fiber.hpp"

namespace emulator {

using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;

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

void Fiber::resume() {
  outer_strand_.adopt_current();
  strand_.switch_to();
  void* fake_stack = nullptr;
  sanitizer::start_switch(&fake_stack, bounds_);
  context_ = jump_fcontext(context_, this).fctx;
  sanitizer::finish_switch(fake_stack);
}

void Fiber::enter(boost::context::detail::transfer_t from) {
  auto* self = static_cast<Fiber*>(from.data);
  self->context_ = from.fctx;
  self->outer_bounds_ = sanitizer::finish_switch(nullptr);
  self->function_(self->argument_);
}

void Fiber::jump_back(void** fake_stack) {
  outer_strand_.switch_to();
  sanitizer::start_switch(fake_stack, outer_bounds_);
  context_ = jump_fcontext(context_, nullptr).fctx;
  sanitizer::finish_switch(fake_stack_);
}

void Fiber::leave() {
  jump_back(nullptr);
  __builtin_unreachable();
}

}  // namespace emulator
