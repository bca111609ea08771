#pragma once
/// @file
/// Stages that keep a state for every step, or a map for every leaf, say so if the device has no memory for them.

#include <cstdint>
#include <string>
#include <string_view>

namespace tutorial::scan {

/// Why a workspace of so many bytes cannot be allocated, with both numbers; empty if it can.
/// @param tag the workspace's: what it has already counts as free
/// @throws CudaError if the device does not say how much memory it has
std::string memory_shortage(std::string_view tag, std::int64_t bytes);

}  // namespace tutorial::scan
