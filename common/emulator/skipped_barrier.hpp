#pragma once
/// @file
/// Fault injection: a barrier that does nothing.

#include <optional>
#include <source_location>
#include <string>

namespace emulator {

/// A line of a source file whose barrier, arrival, wait, commit or fence is to be skipped.
struct SkippedBarrier {
  std::string file;  ///< the end of its path
  unsigned line = 0;

  /// @param text "file.cu:LINE" @throws std::invalid_argument
  static SkippedBarrier parse(const std::string& text);
  /// The one that skip_barrier() or EMULATOR_SKIP_BARRIER asks for. @throws std::invalid_argument
  static std::optional<SkippedBarrier> current();

  /// Whether it is the barrier at this place.
  bool is_at(const std::source_location& where) const;
};

}  // namespace emulator
