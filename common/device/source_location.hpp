#pragma once
/// @file
/// The place of a call in a kernel, for the emulator's reports.

#include <source_location>

namespace tutorial {

#if TUTORIAL_EMULATOR
/// Default of the last parameter of device functions that the emulator has something to say about:
/// `SourceLocation where = SourceLocation::current()` is the line of the kernel that calls.
using SourceLocation = std::source_location;
#else
/// On a GPU nobody asks: an empty class, of which the compiler leaves nothing.
struct SourceLocation {
  /// Nothing, on a GPU.
  static constexpr SourceLocation current() { return {}; }
};
#endif

}  // namespace tutorial
