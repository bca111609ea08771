#pragma once
/// @file
/// A fault that is asked for: one group of NCCL's transfers fails.

#include <cstdint>
#include <optional>

namespace emulator {

/// What EMULATOR_NCCL_FAULT says.
struct NcclFault {
  bool hangs = false;       ///< the transfers never end; otherwise the communicators tell of an error
  std::uint64_t group = 0;  ///< the group that fails, counted from 1 for each communicator

  /// "error:3" or "hang:3"; nothing if it is not set. @throws std::invalid_argument for anything else
  static std::optional<NcclFault> from_environment();
};

}  // namespace emulator
