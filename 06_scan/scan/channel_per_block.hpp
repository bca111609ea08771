#pragma once
/// @file
/// Counts and limits for stages whose blocks have one channel, or one tile of a channel.

#include <climits>
#include <cstdint>
#include <string>

#include "06_scan/scan.hpp"

namespace tutorial::scan {

/// Channels of all heads and batch entries.
inline std::int64_t channels(const Arguments& a) {
  return std::int64_t(a.B) * a.H * a.D;
}

/// Tiles of a sequence.
/// @param tile steps of a tile
inline std::int64_t tiles_of(const Arguments& a, int tile) {
  return (a.L - 1) / tile + 1;
}

/// Maps that tiles publish for each other: none if each sequence has one tile.
inline std::int64_t published_maps(const Arguments& a, int tile) {
  return tiles_of(a, tile) > 1 ? channels(a) * tiles_of(a, tile) : 0;
}

/// Why a stage with one block per channel cannot run the problem, as a sentence; empty if it can.
inline std::string channel_per_block_unsupported(const Arguments& a, int tile) {
  if (channels(a) > INT_MAX) return "B H D > 2^31 - 1: the grid";
  return a.L > INT_MAX - tile ? "L > 2^31 - 1 less a tile: positions are counted in int" : "";
}

/// The same for a stage with one block per channel and tile.
inline std::string tiles_unsupported(const Arguments& a, int tile) {
  if (channels(a) > INT_MAX / tiles_of(a, tile)) return "more than 2^31 - 1 tiles: the grid";
  return a.L > INT_MAX - tile ? "L > 2^31 - 1 less a tile: positions are counted in int" : "";
}

}  // namespace tutorial::scan
