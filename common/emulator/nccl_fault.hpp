#pragma once
/// @file
/// A fault that is asked for: one group of NCCL's transfers fails.

#include <cstdint>
#include <optional>

namespace emulator {

/// What EMULATOR_NCCL_FAULT says.
struct NcclFault {
  enum class Kind {
    error,  ///< the communicators tell of an error
    hang,   ///< the transfers never end
    block,  ///< the call that starts them never returns
  };
  Kind kind = Kind::error;
  std::uint64_t group = 0;  ///< the group that fails, counted from 1 for each communicator

  /// "error:3", "hang:3" or "block:3"; nothing if it is not set. @throws std::invalid_argument for anything else
  static std::optional<NcclFault> from_environment();
};

}  // namespace emulator
