#pragma once
/// @file
/// Places in the source.

#include <cstring>
#include <source_location>

namespace emulator {

/// Whether two places are on the same line. Columns do not count: what a macro or a loop repeats is one place.
inline bool is_same_place(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

}  // namespace emulator
