#pragma once
/// @file
/// Counts for stages whose blocks have one channel, or one tile of a channel.

#include <cstdint>

#include "06_scan/scan.hpp"

namespace tutorial::scan {

// Steps of a tile. They decide how much memory tiles publish, too.
inline constexpr int kBlockTile = 1024;    ///< of blelloch_gpu, warp_shuffle, single_pass and warp_look_back
inline constexpr int kWideTile = 8192;     ///< of wide_tiles
inline constexpr int kChannelsTile = 128;  ///< of channel_lanes, for 32 channels

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

}  // namespace tutorial::scan
