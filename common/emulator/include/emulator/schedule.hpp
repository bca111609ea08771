#pragma once
/// @file
/// The order in which the threads of a block run.

#include <string>

namespace emulator {

/// Sets the order in which threads run between barriers, and in which blocks start, from the next launch on:
/// "forward", "reverse", "warps", "warps-reverse" or "random:SEED", or "mixed:SEED": each launch has one of these. A
/// kernel that is right gives the same result in all of them. An empty text gives the choice back to the environment
/// variable EMULATOR_SCHEDULE, which is forward if it is not set.
/// @throws std::invalid_argument for any other text
void set_schedule(const std::string& text);

}  // namespace emulator
