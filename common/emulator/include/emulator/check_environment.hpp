#pragma once
/// @file
/// The user's settings, looked at before anything runs.

namespace emulator {

/// Reads every environment variable of the emulator that is set.
/// @throws std::invalid_argument, with a line for the user, if one has a value that makes no sense
void check_environment();

}  // namespace emulator
