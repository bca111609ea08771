#pragma once
/// @file
/// Settings from the environment.

#include <cstddef>
#include <cstdint>
#include <optional>

namespace emulator {

/// The whole number from 1 to `most` in an environment variable; nothing if it is not set.
/// @throws std::invalid_argument, with a message for the user, if it is anything else
std::optional<std::uint64_t> number_from_environment(const char* name, std::uint64_t most);

/// The number in EMULATOR_THREADS. @throws std::invalid_argument
std::optional<unsigned> threads_from_environment();
/// More multiprocessors than any machine has, and few enough that what programs compute with them fits their types.
inline constexpr std::uint64_t kMostMultiprocessors = 4096;
/// The number in EMULATOR_MULTIPROCESSORS. @throws std::invalid_argument
std::optional<int> multiprocessors_from_environment();
/// The number in EMULATOR_DEVICES. @throws std::invalid_argument
std::optional<int> devices_from_environment();
/// The number in EMULATOR_MEMORY. @throws std::invalid_argument
std::optional<std::size_t> memory_from_environment();

/// How many blocks of a launch are traced: EMULATOR_TRACE_BLOCKS. @throws std::invalid_argument as above
std::uint64_t trace_blocks_from_environment();

}  // namespace emulator
