#pragma once
/// @file
/// A fiber: a function with a stack of its own that can stop in the middle and go on later. Switching costs a few
/// nanoseconds, because it saves and loads only the registers that a function call has to preserve.

#include <boost/context/detail/fcontext.hpp>

#include "sanitizer.hpp"

namespace emulator {

/// One thread of a kernel, or, as it is by default, the OS thread that runs them. All fibers that switch to each other
/// belong to one OS thread.
class Fiber {
 public:
  /// Prepares a call of `function(argument)` on a stack; the first switch to the fiber starts it. `function` must end
  /// with leave_to() and never return.
  /// @param name for ThreadSanitizer's reports
  void prepare(char* stack_top, sanitizer::StackBounds bounds, void (*function)(void*), void* argument,
               const char* name);
  /// Gives up the fiber. What is left in its frames, if it has not ended, is not destroyed.
  /// @param ended whether it has called leave_to()
  /// @param end what the fiber did happens before an acquire() of this point
  void discard(bool ended, sanitizer::SyncPoint& end);

  /// Called on this fiber: goes on with another one, and returns when a fiber switches back.
  void switch_to(Fiber& next) {
    if (&next != this) jump(next, &fake_stack_);
  }
  /// Goes on with another one for good.
  [[noreturn]] void leave_to(Fiber& next);

  sanitizer::Strand& strand() { return strand_; }

 private:
  static void enter(boost::context::detail::transfer_t transfer);
  void jump(Fiber& next, void** fake_stack);

  boost::context::detail::fcontext_t context_ = nullptr;  ///< where it goes on
  sanitizer::StackBounds bounds_;
  void* fake_stack_ = nullptr;
  sanitizer::Strand strand_;
  void (*function_)(void*) = nullptr;
  void* argument_ = nullptr;
};

}  // namespace emulator
