#pragma once
/// @file
/// What went from device to device.

#include <cstdint>

namespace emulator {

/// Bytes that NCCL's calls have brought from one device to another since the process began. An all-gather of N devices
/// brings the data of each to the N - 1 others.
std::uint64_t link_bytes();

}  // namespace emulator
