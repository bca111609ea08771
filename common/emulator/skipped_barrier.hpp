#pragma once
/// @file
/// Fault injection: a barrier that does nothing.

#include <optional>
#include <source_location>
#include <string>

namespace emulator {

/// A line of a source file whose barrier, arrival, wait, commit or fence is to be skipped, or to be weaker for the detector
/// of races: then it stops and wakes threads as ever, and all values come out right, unless the enumerator says else.
struct SkippedBarrier {
  enum class Fault {
    skipped,
    relaxed,  ///< it hands over nothing
    early,    ///< as if it stood before the last access of shared memory: it does not hand over that and what follows
    late,     ///< what it waits for is known from the next barrier, arrival or wait on that follows such an access
    weaker  ///< a wait leaves one group of copies or products more; a barrier counts an arrival less. Values may change
  };

  std::string file;  ///< the end of its path
  unsigned line = 0;
  Fault fault = Fault::skipped;

  /// @param text "file.cu:LINE", or "file.cu:LINE:early" and its like @throws std::invalid_argument
  static SkippedBarrier parse(const std::string& text);
  /// The one that skip_barrier() or EMULATOR_SKIP_BARRIER asks for. @throws std::invalid_argument
  static std::optional<SkippedBarrier> current();

  /// Whether it is the barrier at this place.
  bool is_at(const std::source_location& where) const;
};

}  // namespace emulator
