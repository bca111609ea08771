#pragma once
/// @file
/// Settings from the environment.

#include <cstdint>
#include <optional>

namespace emulator {

/// The whole number, 1 or more, in an environment variable; nothing if it is not set.
/// @throws std::invalid_argument, with a message for the user, if it is anything else
std::optional<std::uint64_t> number_from_environment(const char* name);

}  // namespace emulator
