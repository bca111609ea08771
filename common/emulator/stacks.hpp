#pragma once
/// @file
/// The stacks of the threads of a block.

#include <cstddef>

#include "sanitizer.hpp"

namespace emulator {

/// A number of stacks in one stretch of memory, each with an inaccessible page below: a kernel that overflows its stack
/// crashes instead of writing into its neighbour's. Only pages that are touched take memory.
class Stacks {
 public:
  Stacks() = default;
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  /// Makes sure that there are `count` stacks; none may be in use. @throws std::bad_alloc
  void reserve(unsigned count);
  /// The usable bytes of stack i.
  sanitizer::StackBounds bounds(unsigned i) const;
  /// Where stack i begins; it grows downwards.
  char* top(unsigned i) const;
  /// Whether an address is in one of them.
  bool contains(const void* address) const {
    const auto* byte = static_cast<const char*>(address);
    return byte >= memory_ && byte < memory_ + bytes_;
  }
  /// Whether an address is in one of the inaccessible pages.
  bool overflowed(const void* address) const;

 private:
  void release();

  unsigned count_ = 0;
  std::size_t bytes_ = 0;
  char* memory_ = nullptr;
};

}  // namespace emulator
