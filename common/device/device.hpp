#pragma once
/// @file
/// What a launcher asks about the device that it runs on.

namespace tutorial {

/// The number of multiprocessors of the current device. On the emulator EMULATOR_MULTIPROCESSORS sets it.
int multiprocessor_count();

}  // namespace tutorial
