#pragma once
/// @file
/// The place of a call in a kernel, for the emulator's reports.

#include <cstdint>
#include <source_location>

namespace tutorial {

#if TUTORIAL_EMULATOR
/// Default of the last parameter of device functions that the emulator has something to say about:
/// `SourceLocation where = SourceLocation::current()` is the line of the kernel that calls.
using SourceLocation = std::source_location;
#elif TUTORIAL_TRACE
/// Of the file the hash of its path in the project: what a trace's events have room for (trace.cuh). tools/timeline finds the
/// file that it is of.
struct SourceLocation {
  std::uint32_t place;  ///< 20 bits of the file, 12 of the line

  /// The line that calls, or the one whose default argument this is.
  static consteval SourceLocation current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return {hash(file) << 12 | (line & 0xFFF)};
  }

 private:
  static consteval std::uint32_t hash(const char* file) {
    const char* root = TUTORIAL_ROOT "/";
    const char* rest = file;
    while (*root != 0 && *root == *rest) ++root, ++rest;
    if (*root == 0) file = rest;
    while (file[0] == '.' && file[1] == '.' && file[2] == '/') file += 3;
    std::uint32_t value = 2166136261;
    for (; *file != 0; ++file) value = (value ^ static_cast<unsigned char>(*file)) * 16777619;
    return (value ^ value >> 20) & 0xFFFFF;
  }
};
#else
/// On a GPU nobody asks: an empty class, of which the compiler leaves nothing.
struct SourceLocation {
  /// Nothing, on a GPU.
  static constexpr SourceLocation current() { return {}; }
};
#endif

}  // namespace tutorial
