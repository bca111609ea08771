#pragma once
/// @file
/// Counts for stages whose blocks have one channel.

#include <cstdint>

#include "06_scan/scan.hpp"

namespace tutorial::scan {

/// Steps of a tile of blelloch_gpu, warp_shuffle, single_pass and warp_look_back.
inline constexpr int kBlockTile = 1024;

/// Channels of all heads and batch entries.
inline std::int64_t channels(const Arguments& a) {
  return std::int64_t(a.B) * a.H * a.D;
}

}  // namespace tutorial::scan
