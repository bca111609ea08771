#pragma once
/// @file
/// The sums, which threads of several OS threads add to.

#include <atomic>

#include "emulator/hopper_counters.hpp"

namespace emulator {

inline std::atomic<std::uint64_t> arrival_count = 0;
inline std::atomic<std::uint64_t> product_count = 0;

}  // namespace emulator
