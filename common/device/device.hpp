#pragma once
/// @file
/// What a launcher asks about the device that it runs on. Without a device these throw CudaError.

namespace tutorial {

/// The number of multiprocessors of the current device. On the emulator EMULATOR_MULTIPROCESSORS sets it.
int multiprocessor_count();

/// The compute capability of the current device as one number: 90 for 9.0, which is Hopper and the emulator.
int compute_capability();

/// The most shared memory that a block may have, in bytes: 227 KB on an H200 and on the emulator, 99 KB on some others.
int shared_memory_per_block();

}  // namespace tutorial
