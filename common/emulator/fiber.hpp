#pragma once
/// @file
/// A fiber: a function with a stack of its own that can stop in the middle and go on later. Switching costs a few
/// nanoseconds, because it saves and loads only the registers that a function call has to preserve.

#include <boost/context/detail/fcontext.hpp>

#include "sanitizer.hpp"

namespace emulator {

/// One thread of a kernel, as a fiber of the OS thread that resumes it.
class Fiber {
 public:
  /// Prepares a call of `function(argument)` on the stack; resume() starts it. `function` must end with a call of
  /// leave() and never return.
  void prepare(char* stack_top, sanitizer::StackBounds bounds, void (*function)(void*), void* argument,
               const char* name);
  /// Gives up the fiber. What is left in its frames, if it has not ended, is not destroyed.
  /// @param ended whether it has called leave()
  /// @param end what the fiber did happens before an acquire() of this point
  void discard(bool ended, sanitizer::SyncPoint& end);

  /// Runs the fiber until it calls suspend() or leave(). Called from the OS thread's own stack.
  void resume();
  /// Goes back to resume(). Called from the fiber.
  void suspend() { jump_back(&fake_stack_); }
  /// Goes back to resume() for good.
  [[noreturn]] void leave();

 private:
  static void enter(boost::context::detail::transfer_t from);
  void jump_back(void** fake_stack);

  boost::context::detail::fcontext_t context_ = nullptr;  ///< of the fiber while it is stopped, else of resume()
  sanitizer::StackBounds bounds_;
  sanitizer::StackBounds outer_bounds_;  ///< the stack that resume() was called on
  void* fake_stack_ = nullptr;
  sanitizer::Strand strand_;
  sanitizer::Strand outer_strand_;
  void (*function_)(void*) = nullptr;
  void* argument_ = nullptr;
};

}  // namespace emulator
