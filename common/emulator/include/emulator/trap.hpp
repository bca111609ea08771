#pragma once
/// @file
/// How a kernel ends that did what a GPU would not allow.

#include <source_location>

namespace emulator {

/// Ends the launch: emulator::launch() returns cudaErrorLaunchFailure, and the report names the thread and its block,
/// what it did wrong and where. For what ends a kernel on a GPU, too, such as a misaligned address, or what gives an
/// undefined result there. The frames of the block's threads are not unwound, so nothing in them should own memory.
[[noreturn]] void trap(const char* what, std::source_location where);

}  // namespace emulator
