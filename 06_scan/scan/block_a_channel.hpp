#pragma once
/// @file
/// What the launchers of stages 5 and 6 share: a block for each channel.

#include <climits>
#include <cstdint>
#include <string>

#include "06_scan/scan.hpp"

namespace tutorial::scan {

/// Channels of all heads and batch entries.
inline std::int64_t channels(const Arguments& a) {
  return std::int64_t(a.B) * a.H * a.D;
}

/// What these stages cannot run, as a sentence; empty where they can.
/// @param tile steps of a tile
inline std::string block_a_channel_limits(const Arguments& a, int tile) {
  if (channels(a) > INT_MAX) return "B H D > 2^31 - 1: the grid";
  return a.L > INT_MAX - tile ? "L > 2^31 - 1 less a tile: positions are counted in int" : "";
}

}  // namespace tutorial::scan
