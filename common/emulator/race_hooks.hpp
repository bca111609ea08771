#pragma once
/// @file
/// What instrumented sources call: see race_hooks.cpp.

namespace emulator::races {

/// Whether some source of this program tells of its accesses.
bool is_instrumented();

}  // namespace emulator::races
