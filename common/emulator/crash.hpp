#pragma once
/// @file
/// When a kernel crashes, its block and thread are named.

#include <memory>

namespace emulator {

/// Catches the signals of failed assertions and stray addresses, to print which thread of a kernel it was; then the
/// program ends as it would have. Signals that the program or a sanitizer handles already are left to them.
void watch_for_crashes();

/// A stack for signal handlers of the OS thread that makes it: a kernel that overflowed its own stack cannot run them
/// there.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  std::unique_ptr<char[]> memory_;
};

}  // namespace emulator
