#pragma once
/// @file
/// The sums over all blocks.

#include "emulator/counters.hpp"

namespace emulator {

/// Adds to what counters() gives.
void add_to_counters(const Counters& more);

}  // namespace emulator
