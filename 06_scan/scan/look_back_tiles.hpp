#pragma once
/// @file
/// Counts for stages whose blocks have one tile each, and publish maps for each other.

#include "06_scan/scan/channel_per_block.hpp"

namespace tutorial::scan {

// Steps of a tile. They decide how much memory tiles publish, too.
inline constexpr int kWideTile = 8192;     ///< of wide_tiles
inline constexpr int kChannelsTile = 128;  ///< of channel_lanes, for 32 channels

/// Tiles of a sequence.
/// @param tile steps of a tile
inline std::int64_t tiles_of(const Arguments& a, int tile) {
  return (a.L - 1) / tile + 1;
}

/// Maps that tiles publish for each other: none if each sequence has one tile.
inline std::int64_t published_maps(const Arguments& a, int tile) {
  return tiles_of(a, tile) > 1 ? channels(a) * tiles_of(a, tile) : 0;
}

}  // namespace tutorial::scan
